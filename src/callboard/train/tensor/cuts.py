"""``Cut``: which part of an array each shard has; states of a whole model from those of its shards, and back."""

from collections.abc import Sequence
from typing import Any

import msgspec

from callboard.train.batches import shares
from callboard.train.states import State, pack_host, unpack

__all__ = ["Cut", "Division", "even", "in_groups", "joined", "parted"]


class Cut(msgspec.Struct, frozen=True):
    """The part of each shard along an axis.

    Attributes:
        axis: The axis.
        pieces: For each shard, the ranges ``(start, stop)`` that its part consists of, in order.
    """

    axis: int
    pieces: tuple[tuple[tuple[int, int], ...], ...]

    def part(self, whole: Any, rank: int) -> Any:
        """The part of one shard, a tensor of its own."""
        import torch

        return torch.cat([whole.narrow(self.axis, a, b - a) for a, b in self.pieces[rank]], self.axis).contiguous()

    def join(self, parts: Sequence[Any]) -> Any:
        """The whole tensor."""
        shape = list(parts[0].shape)
        shape[self.axis] = sum(part.shape[self.axis] for part in parts)
        whole = parts[0].new_empty(shape)
        for part, pieces in zip(parts, self.pieces, strict=True):
            at = 0
            for start, stop in pieces:
                whole.narrow(self.axis, start, stop - start).copy_(part.narrow(self.axis, at, stop - start))
                at += stop - start
        return whole


class Division(msgspec.Struct, frozen=True):
    """How the shards of a model are cut.

    Attributes:
        cuts: By names of the model's ``state_dict``; what is not among them is whole on every shard.
        names: The parameters in the order of the optimizer's ``state_dict``.
    """

    cuts: dict[str, Cut]
    names: list[str]


def even(axis: int, length: int, size: int) -> Cut:
    """Consecutive parts; the first ones have one more where it does not divide."""
    return in_groups(axis, length, 1, size)


def in_groups(axis: int, groups: int, width: int, size: int, repeats: int = 1) -> Cut:
    """Whole groups of ``width`` elements for each shard, in each of ``repeats`` arrays that lie one after the other."""
    step = groups * width
    pieces = [
        tuple((at * step + share.start * width, at * step + share.stop * width) for at in range(repeats))
        for share in shares(groups, size)
    ]
    return Cut(axis, tuple(pieces))


def joined(parts: Sequence[State], division: Division) -> State:
    """The state of the whole model, as one device would have it, from those of all shards."""
    owns = [unpack(part) for part in parts]
    models = [own[0] for own in owns]
    first_model, first_optimizer, rates = owns[0]
    model = {
        name: division.cuts[name].join([each[name] for each in models]) if name in division.cuts else value
        for name, value in first_model.items()
    }
    state: dict[int, dict[str, Any]] = {}
    for number, values in first_optimizer["state"].items():
        name = division.names[number]
        cut, shape = division.cuts.get(name), first_model[name].shape
        state[number] = {
            key: cut.join([own[1]["state"][number][key] for own in owns])
            if cut is not None and getattr(value, "shape", None) == shape
            else value
            for key, value in values.items()
        }
    whole = model, {**first_optimizer, "state": state}, rates
    return pack_host(whole, parts[0].step, parts[0].updates)


def parted(whole: State, division: Division, size: int) -> list[State]:
    """The states of all shards from that of the whole model.

    Raises:
        RuntimeError: It is of another model.
    """
    model, optimizer, rates = unpack(whole)
    unknown = sorted(set(division.cuts) - set(model))
    if unknown:
        raise RuntimeError(f"the state_dict is of another model: it has no {', '.join(unknown)}")
    parts = []
    for rank in range(size):
        state = {
            number: {
                key: division.cuts[name].part(value, rank)
                if name in division.cuts and getattr(value, "shape", None) == model[name].shape
                else value
                for key, value in values.items()
            }
            for number, values in optimizer["state"].items()
            for name in [division.names[number]]
        }
        own = {
            name: division.cuts[name].part(one, rank) if name in division.cuts else one for name, one in model.items()
        }
        parts.append(pack_host((own, {**optimizer, "state": state}, rates), whole.step, whole.updates))
    return parts
