"""``Lending``: arrays of this process in a device's hands and the device's in others', under thread isolation.

The application does not access a context's tables, which belong to the admitting thread. It sends a ``LendingRequest``,
which is ordered like an op and is called back when its condition holds.
"""

from typing import TYPE_CHECKING, Any

from callboard.core.backend import Memory
from callboard.core.errors import AccelError, DeviceStopped, GpuRefStale
from callboard.device.host.context.blocks import Block, BlockPool
from callboard.device.host.context.pending import FAILED, FLYING, OK
from callboard.device.protocol.failures import as_error
from callboard.device.protocol.lending import Borrow, Lend, Lent, Return

if TYPE_CHECKING:
    from callboard.device.host.context.actor import ContextActor

__all__ = ["Lending"]


class BorrowedBlock(Block):
    """Memory of others; its owner is let go when the buffer is freed and nothing in flight uses it."""

    __slots__ = ("_dying",)

    def __init__(self, memory: Memory, dying: list[Block]) -> None:
        super().__init__(memory, memory.nbytes)
        self._dying = dying

    def give(self, pool: BlockPool) -> bool:
        self._dying.append(self)
        return True


class Lending:
    """The admitting thread's side of requests."""

    def __init__(self, context: "ContextActor") -> None:
        self._context = context
        self._waiting: list[tuple[Lend, Block]] = []
        self._dying: list[Block] = []

    def take(self, request: Any) -> None:
        """Act on a request."""
        if isinstance(request, Return):
            if request.consumer in request.block.lent:
                self._returned(request.block, request.consumer)
            return
        context = self._context
        parking = context.parking
        if parking.active and parking.blocks((), [request.buffer], None):
            parking.park(request, self.take, (), [request.buffer], None)
        elif isinstance(request, Borrow):
            self._borrow(request)
        else:
            block = context.admission.buffers.get(request.buffer)
            if block is None:
                request.answer(None, GpuRefStale("it names no buffer of this context", "freed"))
            else:
                self._waiting.append((request, block))
                self.advance()

    def advance(self) -> bool:
        """Answer the requests that can be answered now; True while others wait."""
        if self._waiting:
            self._waiting = [entry for entry in self._waiting if not self._answered(*entry)]
        if self._dying:
            self._dying[:] = [block for block in self._dying if not block.idle()]
        return bool(self._waiting or self._dying)

    def close(self) -> None:
        """Drop the pending requests, whose conditions will not hold any more."""
        for request, _ in self._waiting:
            request.answer(None, DeviceStopped("the device was closed"))
        self._waiting.clear()
        self._dying.clear()

    def _answered(self, request: Lend, block: Block) -> bool:
        source = block.source
        if request.settled:
            if not block.idle() or (source is not None and source.state == FLYING):
                return False
            if source is not None and source.state == FAILED:
                assert source.failure is not None
                request.answer(None, as_error(source.failure))
                if source.once:
                    source.once, source.state = False, OK
                return True
            if request.consumer:
                block.lent, block.only = (*block.lent, request.consumer), None
        fresh = source is not None and source.id == block.unwritten  # else the writer of earlier contents would be told
        writer = None if block.writer is None or fresh else block.writer.stream.id
        memory = block.memory
        request.answer(Lent(block.address, memory, memory.owner, writer, self._context.device.native, block), None)
        return True

    def _borrow(self, request: Borrow) -> None:
        context, memory = self._context, request.memory
        native = context.device.native
        if request.ordinal not in (None, native):
            request.answer(
                None, TypeError(f"adopt: the array is on GPU {request.ordinal}, this device is GPU {native}")
            )
            return
        timelines = context.streams.timelines
        timeline = timelines[0] if timelines else context.streams.acquire("memory")
        if request.follow is not None:
            try:
                timeline.stream.follow(request.follow)
            except AccelError as e:
                request.answer(None, e)
                return
        block = BorrowedBlock(memory, self._dying)
        # The stream waits for the owner's work, so users of the buffer wait for that stream.
        timeline.issued += 1
        block.writer, block.wrote = timeline, timeline.issued
        block.only = None
        context.admission.buffers[request.buffer] = block
        request.answer(Lent(block.address, memory, memory.owner, timeline.stream.id, native, block), None)

    def _returned(self, block: Block, consumer: int) -> None:
        timeline = self._context.streams.timelines[0]
        block.before_write(timeline)  # this follows the consumer's stream, too
        block.only = None
        block.lent = tuple(native for native in block.lent if native != consumer)
        timeline.issued += 1
        block.writer, block.wrote = timeline, timeline.issued
        block.only = None
