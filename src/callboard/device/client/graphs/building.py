"""Builds the data of replays from the ops taken by an :class:`OpRecorder`."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from callboard.core.errors import ShapeError
from callboard.core.layout import Layout
from callboard.core.ref import Allocation, GpuRef
from callboard.device.client.graphs.recorder import OpRecorder
from callboard.device.client.graphs.script import (
    ArrayUse,
    Chosen,
    OperandPlace,
    RecordedOp,
    blocks_of,
    packed,
    script_operands,
    steps_of,
    written_by,
)
from callboard.device.protocol.recording import Script, ScriptOperand, write_script
from callboard.kernel.recording import Stream

if TYPE_CHECKING:
    from callboard.device.client.line.port import OpPort

__all__ = ["BuiltRecording", "Draw", "Input", "Output", "built"]


class Input:
    """An array that a recording is given.

    Attributes:
        name: Keyword of the input.
        layout: The layout that a replacement must have; None when ops use several different parts of the array, so that
            it cannot be replaced.
        ref: The one that replays use now.
        named: True if the application named it.
        used: Label of the first op that uses the array, for errors.
    """

    __slots__ = ("layout", "name", "named", "ref", "used")

    def __init__(self, name: str, ref: GpuRef[Any], named: bool) -> None:
        self.name = name
        self.ref = ref
        self.layout: Layout | None = ref.layout
        self.named = named
        self.used = ""


class Output(NamedTuple):
    """An array that a replay gives.

    Attributes:
        operand: Index of the operand that holds the array.
        offset: Bytes from the operand's place to its element 0.
        layout: Layout of the array.
    """

    operand: int
    offset: int
    layout: Layout


class Draw(NamedTuple):
    """Fills with numbers of one stream.

    Attributes:
        stream: Keeps the position.
        fills: For each fill, ``(multiple at which its position lies, number of words it takes)``.
        at: Indices of their positions among the numbers of the recording.
    """

    stream: Stream
    fills: list[tuple[int, int]]
    at: list[int]


class BuiltRecording(NamedTuple):
    """A recording, ready to be replayed. Its operands are the inputs, then the arrays it makes.

    Attributes:
        handle: Owns its id; dropped, the host gives the recording up.
        signature: Signature of the recording's replays.
        operands: Operands of the script.
        inputs: Inputs, in the order of the operands that they stand for.
        own: Bytes of the other ones.
        owners: Allocations of the operands that refs name, by operand index.
        outputs: Outputs of a replay.
        draws: Random numbers that a replay draws.
        ops, blocks, places: The ops, blocks and operand places that the recording was built from; a recording that
            includes this one reads them.
    """

    handle: Allocation
    signature: bytes
    operands: list[ScriptOperand]
    inputs: list[Input]
    own: list[int]
    owners: dict[int, Allocation]
    outputs: list[Output]
    draws: list[Draw]
    ops: list[RecordedOp]
    blocks: list[Chosen]
    places: dict[int, OperandPlace]

    @property
    def written(self) -> set[int]:
        """Arrays that a replay writes."""
        return written_by(self.ops, self.blocks)

    def drawn(self, n: int) -> list[list[int | float]]:
        """The numbers of the calls for ``n`` replays: one call as long as positions advance by equal steps."""
        fills = sum(len(draw.at) for draw in self.draws)
        rows = [[0] * fills for _ in range(n)]
        for draw in self.draws:
            for row, positions in zip(rows, draw.stream.take(draw.fills, n), strict=True):
                for at, position in zip(draw.at, positions, strict=True):
                    row[at] = position
        further = [b - a for a, b in zip(rows[0], rows[min(1, n - 1)], strict=True)]
        if all(row[at] == rows[0][at] + turn * further[at] for turn, row in enumerate(rows) for at in range(fills)):
            return [[n, *rows[0], *further]]
        return [[1, *row, *[0] * fills] for row in rows]


def built(port: "OpPort", taken: OpRecorder, inputs: Sequence[Input], returns: Sequence[GpuRef[Any]]) -> BuiltRecording:
    """Work a recording out.

    Raises:
        ShapeError: Two inputs share memory.
        ValueError: An input is used by no op.
    """
    ops, blocks, hidden = taken.ops, taken.blocks, taken.hidden
    given = _all_inputs(port, taken, inputs)
    places = {one.ref.allocation.id: OperandPlace(at, -one.ref.offset) for at, one in enumerate(given)}
    names = [f"{one.name} ({one.used})" for one in given]
    owners: dict[int, Allocation] = {}
    own: list[int] = []
    rest: dict[int, int] = {}
    for buffer, made in taken.own.items():
        owner = made.allocation()
        if owner is None or buffer in hidden:  # no ref names it any more, or may be used
            rest[buffer] = made.nbytes
            continue
        places[buffer] = OperandPlace(len(names), 0)
        owners[len(names)] = owner
        own.append(made.nbytes)
        names.append("a result of the recording")
    if rest:
        offsets, nbytes = packed(ops, rest, blocks)
        places |= {buffer: OperandPlace(len(names), offset) for buffer, offset in offsets.items()}
        own.append(nbytes)
        names.append("the intermediate results of the recording")
    handle = Allocation(port.mint(), port.outbox.released)
    operands = script_operands(ops, places, names, own, blocks)
    signature = write_script(Script(handle.id, operands, steps_of(ops, places), blocks_of(blocks, places), []))
    outputs = [Output((p := places[r.allocation.id]).operand, r.offset + p.shift, r.layout) for r in returns]
    return BuiltRecording(handle, signature, operands, given, own, owners, outputs, _draws(taken), ops, blocks, places)


def _all_inputs(port: "OpPort", taken: OpRecorder, inputs: Sequence[Input]) -> list[Input]:
    """The inputs with a name, and the other arrays that ops are given, as ``in0``, ``in1`` and so on."""
    by_buffer = {one.ref.allocation.id: one for one in inputs}
    if len(by_buffer) < len(inputs):
        raise ShapeError("record: two inputs share memory; name the array that both are part of")
    taken_names = {one.name for one in inputs}
    free = (name for i in range(len(taken.given) + len(inputs)) if (name := f"in{i}") not in taken_names)
    uses: list[tuple[ArrayUse, RecordedOp | Chosen]] = [(use, op) for op in taken.ops for use in op.given]
    uses += [(block.value, block) for block in taken.blocks]
    for use, op in uses:
        if use.buffer not in taken.own:
            one = by_buffer.get(use.buffer)
            if one is None:
                owner = taken.given[use.buffer]
                ref: GpuRef[Any] = GpuRef(port, owner, use.layout, port.generation, use.offset)
                one = by_buffer[use.buffer] = Input(next(free), ref, named=False)
            elif not one.named and (one.ref.offset, one.ref.layout) != (use.offset, use.layout):
                one.layout = None
            one.used = one.used or f"{use.name} of {op.tag}, made at {op.where}"
    for one in inputs:
        if not one.used:
            raise ValueError(f"record: no op uses the input {one.name}")
    return list(by_buffer.values())


def _draws(taken: OpRecorder) -> list[Draw]:
    drawn = [step for step, op in enumerate(taken.ops) if op.drawn]
    order = {step: at for at, step in enumerate(drawn)}
    return [
        Draw(stream, [(multiple, count) for _, multiple, count in fills], [order[step] for step, _, _ in fills])
        for stream, fills in taken.draws.values()
    ]
