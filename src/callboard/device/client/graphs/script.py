"""Builds the script of a recording from its ops: operands, placement of intermediate results, dependencies."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from callboard.core.layout import Layout
from callboard.core.operand import Role
from callboard.device.protocol.recording import ScriptBlock, ScriptOperand, Step

__all__ = [
    "ArrayUse",
    "Chosen",
    "OperandPlace",
    "RecordedOp",
    "RecordingNode",
    "blocks_of",
    "nodes_of",
    "packed",
    "script_operands",
    "steps_of",
    "written_by",
]

ALIGNMENT = 256
READING = Role.IN, Role.INOUT, Role.SCALAR
WRITING = Role.OUT, Role.INOUT


class ArrayUse(NamedTuple):
    """An array that an op uses.

    Attributes:
        buffer: Id of its allocation.
        offset: Bytes from the allocation's start to element 0.
        layout: Layout of the array.
        role: Role of the array in the op: read, written, or both.
        name: The field.
    """

    buffer: int
    offset: int
    layout: Layout
    role: Role
    name: str

    @property
    def writes(self) -> bool:
        return self.role in WRITING


class RecordedOp(NamedTuple):
    """An op as it was called.

    Attributes:
        tag, signature, numbers: Tag, signature and numbers, as in a call.
        given, made: Arrays passed to the op, and arrays that it makes.
        drawn: Positions in ``numbers`` of those that every replay changes.
        where: The line that made it.
    """

    tag: str
    signature: bytes
    numbers: list[int | float]
    given: list[ArrayUse]
    made: list[ArrayUse]
    drawn: list[int]
    where: str

    @property
    def uses(self) -> list[ArrayUse]:
        return [*self.given, *self.made]


@dataclasses.dataclass(eq=False, slots=True)
class Chosen:
    """Ops that run depending on a value on the device.

    Attributes:
        kind: ``"if"``, ``"while"``, ``"switch"``; see
            :class:`Conditional <callboard.kernel.conditional.Conditional>`.
        value: The 0-d array that decides.
        turns: The 0-d counter of a loop's iterations; None for other blocks.
        most: Turns at most, 0 for any number.
        bodies: ``(first, end)`` of each: positions of its ops.
        made: Arrays that its ops make; only they use them.
        where: The line that made it.
    """

    kind: str
    value: ArrayUse
    turns: ArrayUse | None
    most: int
    bodies: list[tuple[int, int]]
    made: set[int]
    where: str

    @property
    def tag(self) -> str:
        return f"graph.{self.kind}"

    @property
    def first(self) -> int:
        return self.bodies[0][0]

    @property
    def end(self) -> int:
        return self.bodies[-1][1]

    @property
    def uses(self) -> list[ArrayUse]:
        return [self.value] if self.turns is None else [self.value, self.turns]


class OperandPlace(NamedTuple):
    """A buffer in a replay: an operand of the script, and the base of its offsets."""

    operand: int
    shift: int


class RecordingNode(NamedTuple):
    """An op of a recording.

    Attributes:
        at: Position in the order of the calls.
        op: Tag of the op.
        reads, writes: Names of the fields and their layouts.
        after: Positions of the ops that must precede it, because of the data that it reads and writes.
        where: The line that made it.
        within: The blocks that it is in, the innermost last: ``"while 0"``, ``"if 1, body 0"``, numbered in order.
    """

    at: int
    op: str
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    after: tuple[int, ...]
    where: str
    within: tuple[str, ...] = ()


def packed(
    ops: Sequence[RecordedOp], sizes: Mapping[int, int], blocks: Sequence[Chosen] = ()
) -> tuple[dict[int, int], int]:
    """Lay buffers into one so that those in use at the same time do not overlap.

    First fit, the largest first; the most that this exceeds the least possible by is not known in general, and nothing
    in chains whose results have one size.

    Args:
        ops: The ops, in order.
        sizes: Bytes of each buffer, by id.
        blocks: Conditional blocks: ranges of ops that may run several times or not at all.

    Returns:
        The offset of each buffer, and the size of all.
    """
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for at, op in enumerate(ops):
        for use in op.uses:
            first.setdefault(use.buffer, at)
            last[use.buffer] = at
    for block in blocks:
        for use in block.uses:
            first[use.buffer] = min(first.get(use.buffer, block.first), block.first)
            last[use.buffer] = max(last.get(use.buffer, block.end - 1), block.end - 1)
    for block in reversed(blocks):  # an iteration reads results of the one before: they live as long as the block
        for buffer in first.keys() - block.made:
            if first[buffer] < block.end and last[buffer] >= block.first:
                first[buffer] = min(first[buffer], block.first)
                last[buffer] = max(last[buffer], block.end - 1)
    offsets: dict[int, int] = {}
    total = 0
    for buffer in sorted(sizes, key=lambda b: (-sizes[b], b)):
        if buffer not in first:  # made, and used by no op
            offsets[buffer] = 0
            continue
        beside = sorted(
            (offsets[b], sizes[b])
            for b in offsets
            if b in first and first[b] <= last[buffer] and first[buffer] <= last[b]
        )
        at = 0
        for offset, size in beside:
            if at + sizes[buffer] <= offset:
                break
            at = max(at, -(-(offset + size) // ALIGNMENT) * ALIGNMENT)
        offsets[buffer] = at
        total = max(total, at + sizes[buffer])
    return offsets, total


def script_operands(
    ops: Sequence[RecordedOp],
    places: Mapping[int, OperandPlace],
    names: Sequence[str],
    own: Sequence[int],
    blocks: Sequence[Chosen] = (),
) -> list[ScriptOperand]:
    """Return how a replay accesses each operand.

    Args:
        ops: The ops, in order.
        places: Placement of every buffer that the ops use.
        names: Names of the operands, for messages.
        own: Bytes of the last operands, which are the recording's own. No op depends on their initial contents, so a
            replay does not fail because an earlier one failed.
        blocks: Conditional blocks; memory that their ops write does not count as always written.
    """
    operands = [ScriptOperand(name, False, False, -1, 0, 0) for name in names]
    begun = [False] * len(operands)
    fresh = [(0, 0)] * len(operands)  # bytes that the first op overwrites
    within = [[use for block in blocks if block.first == at for use in block.uses] for at in range(len(ops))]
    for at_op, op in enumerate(ops):
        always = not any(block.first <= at_op < block.end for block in blocks)
        for use in (*within[at_op], *op.uses):
            place = places[use.buffer]
            operand = operands[place.operand]
            low, high = use.layout.span
            at = use.offset + place.shift
            if not begun[place.operand]:
                operand.low, operand.high = at + low, at + high
                if use.role is Role.OUT and use.layout.contiguous and always:
                    operand.whole = use.layout.nbytes
                    fresh[place.operand] = at + low, at + high
            operand.low, operand.high = min(operand.low, at + low), max(operand.high, at + high)
            first, end = fresh[place.operand]
            if (use.role in READING or not always) and not first <= at + low <= at + high <= end:
                operand.reads = True
            if use.role in WRITING:
                operand.writes = True
            begun[place.operand] = True
    for operand, nbytes in zip(operands[len(operands) - len(own) :], own, strict=True):
        operand.reads, operand.writes, operand.whole = False, True, nbytes
    return operands


def steps_of(ops: Sequence[RecordedOp], places: Mapping[int, OperandPlace]) -> list[Step]:
    """The ops as they cross the wire."""

    def bound(uses: Iterable[ArrayUse]) -> list[int]:
        flat: list[int] = []
        for use in uses:
            place = places[use.buffer]
            flat += (place.operand, use.offset + place.shift)
        return flat

    laid = [[_placed(use, places) for use in op.uses] for op in ops]  # packed results wait for those before them
    after = _after(laid)
    return [
        Step(op.signature, bound(op.given), op.numbers, bound(op.made), op.drawn, sorted(before), op.where)
        for op, before in zip(ops, after, strict=True)
    ]


def written_by(ops: Iterable[RecordedOp], blocks: Iterable[Chosen]) -> set[int]:
    """The buffers that they write."""
    uses = [*(use for op in ops for use in op.uses), *(use for block in blocks for use in block.uses)]
    return {use.buffer for use in uses if use.writes}


def blocks_of(blocks: Sequence[Chosen], places: Mapping[int, OperandPlace]) -> list[ScriptBlock]:
    """The blocks as they cross the wire."""
    made = []
    for block in blocks:
        value, *turns = [_placed(use, places) for use in block.uses]
        counted = [at for use in turns for at in (use.buffer, use.offset)]
        bodies = [list(body) for body in block.bodies]
        dtype = value.layout.dtype.name
        made.append(ScriptBlock(block.kind, value.buffer, value.offset, dtype, counted, block.most, bodies))
    return made


def nodes_of(ops: Sequence[RecordedOp], blocks: Sequence[Chosen] = ()) -> list[RecordingNode]:
    """The ops, each with the ops that must directly precede it, given the bytes that they use."""
    nodes: list[RecordingNode] = []
    after = _after([op.uses for op in ops])
    for at, op in enumerate(ops):
        reads = tuple(f"{use.name} {use.layout!r}" for use in op.uses if use.role in READING)
        writes = tuple(f"{use.name} {use.layout!r}" for use in op.uses if use.role in WRITING)
        within = [
            f"{block.kind} {number}" + (f", body {body}" if len(block.bodies) > 1 else "")
            for number, block in enumerate(blocks)
            for body, (first, end) in enumerate(block.bodies)
            if first <= at < end
        ]
        nodes.append(RecordingNode(at, op.tag, reads, writes, tuple(sorted(after[at])), op.where, tuple(within)))
    return nodes


def _placed(use: ArrayUse, places: Mapping[int, OperandPlace]) -> ArrayUse:
    place = places[use.buffer]
    return use._replace(buffer=place.operand, offset=use.offset + place.shift)


def _after(ops: Sequence[Sequence[ArrayUse]]) -> list[list[int]]:
    """Return for each op the ops that it follows directly, given the uses of each op.

    An op is left out if another of the returned ops already follows it.
    """
    found: list[list[int]] = []
    behind: list[set[int]] = []  # for each op, all its predecessors
    for at, uses in enumerate(ops):
        after: list[int] = []
        covered: set[int] = set()
        for earlier in reversed(range(at)):
            if earlier not in covered and _conflict(ops[earlier], uses):
                after.append(earlier)
                covered |= {earlier, *behind[earlier]}
        found.append(after)
        behind.append(covered)
    return found


def _conflict(earlier: Sequence[ArrayUse], later: Sequence[ArrayUse]) -> bool:
    return any(
        a.buffer == b.buffer and (a.role in WRITING or b.role in WRITING) and _overlap(a, b)
        for a in earlier
        for b in later
    )


def _overlap(a: ArrayUse, b: ArrayUse) -> bool:
    (a_low, a_high), (b_low, b_high) = a.layout.span, b.layout.span
    return a.offset + a_low < b.offset + b_high and b.offset + b_low < a.offset + a_high
