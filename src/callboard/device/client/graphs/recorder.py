"""``OpRecorder``: takes the ops that are called while a recording is open."""

import sys
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from callboard.core.errors import ShapeError, UnsupportedOp
from callboard.core.layout import Layout
from callboard.core.op import Op, info_of
from callboard.core.operand import Operand, Role
from callboard.core.ref import Allocation, DeferredRef, GpuRef, deferral_of
from callboard.device.client.graphs.script import ArrayUse, Chosen, RecordedOp, written_by
from callboard.device.client.line import refusals
from callboard.device.client.line.entries import Origin
from callboard.device.client.line.plans import ClientPlan, check_overlaps
from callboard.device.client.line.replies import reply_to
from callboard.kernel.memory import Empty
from callboard.kernel.recording import Stream

if TYPE_CHECKING:
    from callboard.device.client.line.port import OpPort

__all__ = ["NOT_REPLAYED", "OpRecorder", "Own", "where_called"]

NOT_REPLAYED = "recorded, and not replayed yet"
"""Reason why the output of a recorded op cannot be used before the first replay."""
IN_BLOCK = "made in a block of a recording, which may not run"
"""Reason why the output of an op in a block cannot be used after it."""
HOST = Role.HOST_IN, Role.HOST_OUT


class Own:
    """An array that an op of the recording makes.

    Attributes:
        nbytes: Size in bytes.
        allocation: Returns its owner; None when no ref of it is left.
    """

    __slots__ = ("allocation", "nbytes")

    def __init__(self, nbytes: int, allocation: Allocation) -> None:
        self.nbytes = nbytes
        self.allocation = weakref.ref(allocation)


class OpRecorder:
    """Checks ops as the device would, and keeps them instead of sending them.

    Args:
        port: Op port whose ops it records.

    Attributes:
        ops: The recorded ops, in order.
        own: Arrays that they make, by id of the allocation.
        given: Owners of the other arrays that they use, by id.
        blocks: Conditional blocks (executed depending on values on the device), in the order in which they begin.
        open: Blocks that have not ended, the innermost last.
        ended: The block that has ended last, with how many ops there were, and how many blocks around it.
        draws: The streams of random numbers, each with ``(step, alignment, taken)`` of its fills.
    """

    def __init__(self, port: "OpPort") -> None:
        self._port = port
        self._drawing: tuple[Stream, tuple[int, int]] | None = None
        self.ops: list[RecordedOp] = []
        self.own: dict[int, Own] = {}
        self.given: dict[int, Allocation] = {}
        self.blocks: list[Chosen] = []
        self.open: list[Chosen] = []
        self.ended: tuple[Chosen, int, int] | None = None
        self.draws: dict[int, tuple[Stream, list[tuple[int, int, int]]]] = {}

    def owns(self, port: object) -> bool:
        return port is self._port

    def draw(self, stream: Stream, size: tuple[int, int]) -> None:
        """The op that is recorded next draws from this stream."""
        self._drawing = stream, size

    def drawn(self) -> bool:
        """True if the op of the last :meth:`draw` was not recorded; resets the state."""
        drawing, self._drawing = self._drawing, None
        return drawing is not None

    def makes(self, allocation: Allocation) -> bool:
        return allocation.freed == NOT_REPLAYED and allocation.id in self.own

    def flush(self) -> None:
        """Record the ops that have been deferred."""
        if self._port.deferrals is not None:
            self._port.deferrals.flush_all(self)

    def record(self, op: Op[Any, Any], depth: int, into: DeferredRef[Any] | None = None) -> Any:
        """See :class:`Recorder <callboard.kernel.recording.Recorder>`.

        Raises:
            UnsupportedOp: The op cannot be recorded; names the reason.
            ShapeError, DeviceMismatch, GpuRefStale: Raised under the same conditions as for a call outside a recording.
        """
        drawing, self._drawing = self._drawing, None
        port = self._port
        info = info_of(type(op))
        try:
            signature, operands, numbers = info.split(op)
        except ShapeError as e:
            raise (not port.services.blocking and refusals.open_extents(op)) or e from None
        plan = port.plan(signature, op)
        self._check(op, plan)
        if drawing is not None:
            self.check_drawing(plan.tag)
        for ref in operands:
            allocation = ref.allocation
            if allocation.id in self.own:
                self.check_block(ref, plan.tag)
            elif ref._port is not port or ref.generation != port.generation or allocation.freed:
                raise port.unusable(plan.tag, op, ref)
        if plan.written:
            check_overlaps(op)
        if port.deferrals is not None and port.deferrals.live:
            for at in plan.written:
                port.deferrals.before_write(operands[at].allocation)
        made = [port.mint() for _ in plan.outputs]
        answer, settles, _ = reply_to(port, port.outbox.released, plan, op, 0, made, None)
        settled = settles()
        where = where_called(plan.tag, depth + 1)
        if into is not None:
            where = Origin(plan.tag, *deferral_of(into).origin).where
            settled = answer = into.settle_on(answer.allocation, 0)
        refs = _refs_of(settled)
        if not refs:
            settled._resolve()
        self._note_made(made, plan.outputs, refs)
        for ref in refs:
            ref._resolve()
        if not isinstance(op, Empty):
            leaves = [leaf for leaf in info.leaves(op) if isinstance(leaf.value, Operand)]
            uses = [ArrayUse(r.value.allocation.id, r.value.offset, r.value.layout, r.role, r.name) for r in leaves]
            new = [
                ArrayUse(buffer, 0, layout, Role.OUT, name)
                for buffer, layout, name in zip(made, plan.outputs, plan.made, strict=True)
            ]
            drawn = [] if drawing is None else [_position_of(op)]
            recorded = RecordedOp(plan.tag, signature, list(numbers), uses, new, drawn, where)
            self.append(recorded, {ref.allocation.id: ref.allocation for ref in operands}, drawing)
        return answer

    def usable(self, ref: GpuRef[Any]) -> bool:
        """True if an op of the recording may use it."""
        if ref.allocation.id in self.own:
            return True
        return ref._port is self._port and not ref.is_stale

    def make(self, nbytes: int) -> Allocation:
        """An array of the recording's own."""
        allocation = Allocation(self._port.mint(), self._port.outbox.released)
        self._note_own(allocation, nbytes)
        return allocation

    def _note_own(self, allocation: Allocation, nbytes: int) -> None:
        allocation.freed = NOT_REPLAYED
        self.own[allocation.id] = Own(nbytes, allocation)
        for block in self.open:
            block.made.add(allocation.id)

    def check_block(self, ref: GpuRef[Any], what: str) -> None:
        """Refuse an array that was made in a block which has ended."""
        if ref.allocation.freed == IN_BLOCK:
            raise ShapeError(
                f"{what}: {ref.layout!r} was {IN_BLOCK}; make the array before the block, and write to it there (out=)"
            )

    def close_block(self, block: Chosen) -> None:
        """A body has ended: the arrays its ops made no longer exist."""
        assert self.open.pop() is block
        self.ended = block, len(self.ops), len(self.open)
        for buffer in block.made:
            allocation = self.own[buffer].allocation()
            if allocation is not None:
                allocation.freed = IN_BLOCK

    @property
    def hidden(self) -> set[int]:
        """Arrays that only ops of a block use."""
        return {buffer for block in self.blocks for buffer in block.made}

    @property
    def written(self) -> set[int]:
        """Arrays that a replay writes."""
        return written_by(self.ops, self.blocks)

    def append(self, op: RecordedOp, uses: dict[int, Allocation], draw: tuple[Stream, tuple[int, int]] | None) -> None:
        """Add an op.

        Args:
            op: The op.
            uses: Owners of the arrays that it is given, by id.
            draw: The stream that its random numbers come from, and the size of the draw; None for ops that draw none.
        """
        self.given |= {buffer: owner for buffer, owner in uses.items() if buffer not in self.own}
        if draw is not None:
            stream, size = draw
            self.draws.setdefault(id(stream), (stream, []))[1].append((len(self.ops), *size))
        self.ops.append(op)

    def _note_made(self, made: Sequence[int], layouts: Sequence[Layout], refs: Sequence[GpuRef[Any]]) -> None:
        allocations = {ref.allocation.id: ref.allocation for ref in refs}
        for buffer, layout in zip(made, layouts, strict=True):
            self._note_own(allocations.get(buffer) or Allocation(buffer, self._port.outbox.released), layout.nbytes)

    def check_drawing(self, tag: str) -> None:
        """Refuse an op whose random numbers advance with every replay, inside a conditional block.

        The block may run several times or not at all.
        """
        if self.open:
            raise UnsupportedOp(
                f"{tag} cannot be recorded in a block: its generator takes numbers for every replay, but the "
                "number of runs is unknown; give the fill a position of its own"
            )

    def _check(self, op: Op[Any, Any], plan: ClientPlan) -> None:
        cls, tag = type(op), plan.tag
        lib = info_of(cls).library
        library = self._port.library(lib)
        size = library.size_table.get(cls)
        if plan.open or (size is not None and size.due(op)):
            cure = "give its outputs (out=, count=)" if plan.open else "call it before the recording"
            raise UnsupportedOp(f"{tag} cannot be recorded: the host must read data first; {cure}")
        if op.fence is not None or plan.answers is not None:
            raise UnsupportedOp(
                f"{tag} cannot be recorded: it is ordered among all ops, or answered with a value from the "
                "host; call it before or after the replays"
            )
        if plan.value:
            raise UnsupportedOp(f"{tag} cannot be recorded: it is answered with a number; give it out=, a 0-d array")
        if op.memory is not None:
            raise UnsupportedOp(f"{tag} cannot be recorded: its memory is not the recording's; make the array before")
        if any(leaf.role in HOST for leaf in info_of(cls).leaves(op)):
            raise UnsupportedOp(
                f"{tag} cannot be recorded: it copies from or to host memory; put arrays before the recording, name "
                "them, dev.record(x=ref), and get results after a replay"
            )
        if not library.launch_table[cls].captures:
            raise UnsupportedOp(
                f"{tag} cannot be recorded: calls of {self._port.backend}'s {lib} for it cannot be captured in a graph"
            )


def _refs_of(settled: Any) -> list[GpuRef[Any]]:
    return [settled] if isinstance(settled, GpuRef) else list(getattr(settled, "refs", ()))


def _position_of(op: Op[Any, Any]) -> int:
    """The index of ``position`` among the numbers of a fill."""
    at = 0
    for leaf in info_of(type(op)).leaves(op):
        if leaf.name == "position":
            return at
        if not isinstance(leaf.value, Operand):
            at += 2 if isinstance(leaf.value, complex) else 1
    raise TypeError(f"{info_of(type(op)).tag} has no position")


def where_called(tag: str, depth: int) -> str:
    """The line of the application that made the call at a depth of the stack."""
    frame = sys._getframe(depth)
    while frame.f_globals.get("__name__", "").startswith("callboard.") and frame.f_back is not None:
        frame = frame.f_back
    return Origin(tag, None, frame.f_code, frame.f_lasti).where
