"""A recording inside another: its ops are recorded again, on arrays of the other one."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from callboard.core.errors import GpuRefStale, ShapeError
from callboard.core.ref import Allocation, GpuRef
from callboard.device.client.graphs.building import BuiltRecording
from callboard.device.client.graphs.recorder import OpRecorder
from callboard.device.client.graphs.script import ArrayUse, Chosen

if TYPE_CHECKING:
    from callboard.device.client.line.port import OpPort

__all__ = ["include"]


def include(
    port: "OpPort", outer: OpRecorder, inner: BuiltRecording, n: int, given: Mapping[str, Any]
) -> list[GpuRef[Any]]:
    """Record the ops of ``inner`` in ``outer``, ``n`` times; gives its outputs.

    Arrays that the included ops make belong to ``outer``. The recording itself is not changed, and its inputs keep
    their layouts.

    Raises:
        TypeError: An input is unknown, or not a ref: contents cannot be given while recording.
        ShapeError: An input does not fit, or shares memory with another one that is written.
        GpuRefStale: An input cannot be used.
    """
    outer.flush()
    refs = _inputs(outer, inner, given)
    owners = [ref.allocation for ref in refs]
    shifts = [ref.offset for ref in refs]
    for nbytes in inner.own:
        owners.append(outer.make(nbytes))
        shifts.append(0)
    uses = {owner.id: owner for owner in owners}
    if inner.draws:
        outer.check_drawing("a recording with random numbers")
    fills = {at: (draw.stream, fill) for draw in inner.draws for at, fill in zip(draw.at, draw.fills, strict=True)}

    def moved(use: ArrayUse) -> ArrayUse:
        operand, shift = inner.places[use.buffer]
        return use._replace(buffer=owners[operand].id, offset=use.offset + shift + shifts[operand])

    for _ in range(n):
        drawn, begin = 0, len(outer.ops)
        for block in inner.blocks:
            turns = None if block.turns is None else moved(block.turns)
            bodies = [(first + begin, end + begin) for first, end in block.bodies]
            value = moved(block.value)
            outer.blocks.append(Chosen(block.kind, value, turns, block.most, bodies, set(), block.where))
        for op in inner.ops:
            again = op._replace(given=[moved(use) for use in op.given], made=[moved(use) for use in op.made])
            outer.append(again, uses, fills[drawn] if op.drawn else None)
            drawn += bool(op.drawn)
    outputs = []
    for operand, offset, layout in inner.outputs:
        ref: GpuRef[Any] = GpuRef(port, owners[operand], layout, port.generation, offset + shifts[operand])
        ref._resolve()
        outputs.append(ref)
    return outputs


def _inputs(outer: OpRecorder, inner: BuiltRecording, given: Mapping[str, Any]) -> list[GpuRef[Any]]:
    unknown = given.keys() - {one.name for one in inner.inputs}
    if unknown:
        names = ", ".join(one.name for one in inner.inputs)
        raise TypeError(f"replay: the recording has no input {min(unknown)!r}; its inputs are {names}")
    refs: list[GpuRef[Any]] = []
    for one in inner.inputs:
        ref = given.get(one.name, one.ref)
        if not isinstance(ref, GpuRef):
            raise TypeError(
                f"replay: {one.name} is {type(ref).__name__}; while recording pass a GpuRef, and give it contents when "
                "the outer recording is replayed"
            )
        if not outer.usable(ref):
            raise GpuRefStale(f"replay: {one.name} {ref.layout!r} cannot be used here", "context rebuilt")
        outer.check_block(ref, f"replay: {one.name}")
        if one.name in given and ref.layout != one.layout:
            raise ShapeError(f"replay: {one.name} is {ref.layout!r}, recorded was {one.layout!r}, strides included")
        refs.append(ref)
    _check_apart(inner, [ref.allocation for ref in refs])
    return refs


def _check_apart(inner: BuiltRecording, owners: list[Allocation]) -> None:
    for at, owner in enumerate(owners):
        for other in range(at):
            written = inner.operands[at].writes or inner.operands[other].writes
            if owners[other] is owner and written:
                names = f"{inner.inputs[other].name} and {inner.inputs[at].name}"
                raise ShapeError(f"replay: {names} share memory, and the recording writes to it; pass a copy")
