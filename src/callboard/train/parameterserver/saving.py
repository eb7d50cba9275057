"""Checkpoints of a parameter server: those of the trainers, with the weights whole and the optimizer by shard."""

from collections.abc import Hashable
from pathlib import Path
from typing import Any, NamedTuple

from callboard.core.errors import ShapeError
from callboard.train import checkpoints
from callboard.train.parameterserver.layout import Layout
from callboard.train.running.sampling import Cursor
from callboard.train.states import State, pack_host, unpack

__all__ = ["Saved", "read", "write"]


class Saved(NamedTuple):
    """What a checkpoint has.

    Attributes:
        version: Updates.
        states: Of each shard, on the host.
        pushes: See :meth:`.Receipts.saved`.
    """

    version: int
    states: list[State]
    pushes: list[tuple[Hashable, int | None, list[int]]]


def write(folder: Path, layout: Layout, saved: Saved, keep: int | None) -> Path:
    """See :func:`.checkpoints.write`."""
    shards = [unpack(state) for state in saved.states]
    arrays = layout.join([[weight.numpy() for weight in weights] for weights, _, _ in shards])
    rest = {"shards": [optimizer for _, optimizer, _ in shards], "pushes": saved.pushes}
    own = _tensors(arrays), rest, [rates for _, _, rates in shards]
    return checkpoints.write(folder, pack_host(own, saved.version, saved.version), Cursor(), keep)


def read(folder: Path, layout: Layout) -> Saved:
    """A checkpoint of the same weights and number of shards.

    Raises:
        FileNotFoundError: There is none.
        ShapeError: It is of others.
    """
    state, _ = checkpoints.read(folder)
    model, rest, rates = unpack(state)
    arrays = {name: value.numpy() for name, value in model.items()}
    shapes = {name: array.shape for name, array in arrays.items()}
    if shapes != layout.shapes:
        differing = sorted(name for name in {*shapes, *layout.shapes} if shapes.get(name) != layout.shapes.get(name))
        raise ShapeError(f"{folder}: the checkpoint is of other weights; they differ in {', '.join(differing)[:80]}")
    own = rest.get("shards", []) if isinstance(rest, dict) else []
    if len(own) != len(layout.shards):
        raise ShapeError(f"{folder}: the checkpoint has {len(own)} shards, the server {len(layout.shards)}")
    states = [
        pack_host(([*_tensors(dict(enumerate(pieces))).values()], optimizer, rate), state.step, state.step)
        for pieces, optimizer, rate in zip(layout.cut(arrays), own, rates, strict=True)
    ]
    return Saved(state.step, states, [(worker, floor, list(counted)) for worker, floor, counted in rest["pushes"]])


def _tensors(arrays: dict[Any, Any]) -> dict[Any, Any]:
    import torch

    return {name: torch.from_numpy(array) for name, array in arrays.items()}
