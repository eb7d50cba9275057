"""``Lending``: arrays of this process in a device's hands and the device's in others', under thread isolation.

The application does not touch a context's tables, which belong to the admitting thread. It sends a :class:`Visit`,
which takes its place in the one order like an op, and is called back when what it asks for holds.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from callboard.core.backend import AccelStream, Memory
from callboard.core.errors import AccelError, DeviceStopped, GpuRefStale
from callboard.device.context.blocks import Block, BlockPool
from callboard.device.context.pending import FAILED, FLYING
from callboard.device.failures import as_error

if TYPE_CHECKING:
    from callboard.device.context.actor import ContextActor

__all__ = ["Borrow", "Lend", "Lending", "Lent", "Return", "Visit"]


class Lent(NamedTuple):
    """Where a buffer lies.

    Attributes:
        address: Of its first byte.
        memory: Keep it as long as the address is used.
        writer: Id of the stream that wrote it last, None if none has.
        ordinal: Of the device.
        block: What :class:`Return` names.
    """

    address: int
    memory: Memory
    writer: int | None
    ordinal: int
    block: Block


Answered = Callable[[Lent | None, BaseException | None], None]


class Visit:
    """What only the application of a thread host can say: it holds Python objects, and never crosses a wire."""


class Lend(Visit):
    """Say where a buffer lies.

    Args:
        buffer: Id.
        answer: Called on the admitting thread.
        settled: When everything called before is done with it, and has not failed; else as soon as it exists.
        consumer: Native stream on which the borrower may write it from then on; 0: none, it works as it is called.
    """

    def __init__(self, buffer: int, answer: Answered, *, settled: bool, consumer: int = 0) -> None:
        self.buffer = buffer
        self.answer = answer
        self.settled = settled
        self.consumer = consumer


class Return(Visit):
    """The borrower is done with a block: what it has enqueued on its stream so far is the last of it.

    It names the block, because the buffer may have been freed by now.
    """

    def __init__(self, block: Block, consumer: int) -> None:
        self.block = block
        self.consumer = consumer


class Borrow(Visit):
    """Take memory of others as a buffer.

    Args:
        buffer: Id.
        take: Called with the stream that must wait for its owner's work and the device's ordinal; gives the memory.
        answer: Called on the admitting thread.
    """

    def __init__(self, buffer: int, take: Callable[[AccelStream, int], Memory], answer: Answered) -> None:
        self.buffer = buffer
        self.take = take
        self.answer = answer


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
    """The admitting thread's side of visits."""

    def __init__(self, context: "ContextActor") -> None:
        self._context = context
        self._waiting: list[tuple[Lend, Block]] = []
        self._dying: list[Block] = []

    def take(self, visit: Any) -> None:
        """Act on a visit."""
        if isinstance(visit, Return):
            if visit.consumer in visit.block.lent:
                self._returned(visit.block, visit.consumer)
            return
        context = self._context
        parking = context.parking
        if parking.active and parking.blocks((), [visit.buffer], None):
            parking.park(visit, self.take, (), [visit.buffer], None)
        elif isinstance(visit, Borrow):
            self._borrow(visit)
        else:
            block = context.admission.buffers.get(visit.buffer)
            if block is None:
                visit.answer(None, GpuRefStale("it names no buffer of this context", "freed"))
            else:
                self._waiting.append((visit, block))
                self.advance()

    def advance(self) -> bool:
        """Answer what holds now; True while something is waited for."""
        if self._waiting:
            self._waiting = [entry for entry in self._waiting if not self._answered(*entry)]
        if self._dying:
            self._dying[:] = [block for block in self._dying if not block.idle()]
        return bool(self._waiting or self._dying)

    def close(self) -> None:
        """Nothing more will hold."""
        for visit, _ in self._waiting:
            visit.answer(None, DeviceStopped("the device was closed"))
        self._waiting.clear()
        self._dying.clear()

    def _answered(self, visit: Lend, block: Block) -> bool:
        source = block.source
        if visit.settled:
            if not block.idle() or (source is not None and source.state == FLYING):
                return False
            if source is not None and source.state == FAILED:
                assert source.failure is not None
                visit.answer(None, as_error(source.failure))
                return True
            if visit.consumer:
                block.lent, block.only = (*block.lent, visit.consumer), None
        writer = None if block.writer is None else block.writer.stream.id
        visit.answer(Lent(block.address, block.memory, writer, self._context.device.native, block), None)
        return True

    def _borrow(self, visit: Borrow) -> None:
        context = self._context
        tracks = context.streams.tracks
        track = tracks[0] if tracks else context.streams.acquire("memory")
        try:
            memory = visit.take(track.stream, context.device.native)
        except (AccelError, BufferError, TypeError, ValueError) as e:
            visit.answer(None, e)
            return
        block = BorrowedBlock(memory, self._dying)
        # The owner has made the stream wait for its own work: whoever uses the buffer follows that stream.
        track.issued += 1
        block.writer, block.wrote = track, track.issued
        block.only = None
        context.admission.buffers[visit.buffer] = block
        visit.answer(Lent(block.address, memory, track.stream.id, context.device.native, block), None)

    def _returned(self, block: Block, consumer: int) -> None:
        track = self._context.streams.tracks[0]
        block.before_write(track)  # this follows the consumer's stream, too
        block.only = None
        block.lent = tuple(native for native in block.lent if native != consumer)
        track.issued += 1
        block.writer, block.wrote = track, track.issued
        block.only = None
