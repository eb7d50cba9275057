"""``Arrivals``: memory that another device sends, as buffers of this context.

The application names such a buffer before its memory is known. Ops that read it are parked until the memory arrives;
other ops continue.
"""

from typing import Any

from callboard.core.backend import Memory
from callboard.core.errors import AccelError, ContextPoisoned, DriverError, Unrecoverable
from callboard.device.host.context.admission.attached import Attached
from callboard.device.host.context.admission.exporters import Exporters
from callboard.device.host.context.admission.refusing import NO_MEMORY
from callboard.device.host.context.blocks import Block, BlockPool
from callboard.device.host.context.parking import Holds, Parking
from callboard.device.host.context.pending import FLYING, OK, Pending
from callboard.device.protocol.failures import as_failure
from callboard.device.protocol.messages import Arrived, Expect, FailureMessage

__all__ = ["Arrivals"]

SOMEWHERE = 256
"""Address of an array without elements."""

ENDING = 2.0
"""Seconds to wait, at most, for the end of a process whose memory cannot be opened."""


class ArrivedBlock(Block):
    """Memory of another device. It is kept until nothing in flight uses it.

    Attributes:
        exporter: Process that owns the memory, and its start time: data that was read is valid only if the process
            still lives after all reads. None: the memory lives as long as the block.
    """

    __slots__ = ("_leaving", "exporter")

    def __init__(self, memory: Memory, leaving: "list[ArrivedBlock]", exporter: tuple[int, int] | None) -> None:
        super().__init__(memory, memory.nbytes)
        self.exporter = exporter
        self._leaving = leaving

    def give(self, pool: BlockPool) -> bool:
        self._leaving.append(self)
        return True


class Arrivals:
    """The admitting thread's side of copies from other devices.

    Args:
        buffers, parking, attached: Shared with the context.
    """

    def __init__(self, buffers: dict[int, Block], parking: Parking, attached: Attached) -> None:
        self._buffers = buffers
        self._parking = parking
        self._attached = attached
        self._holds = Holds()
        self._exporters = Exporters()
        self._expected: set[int] = set()
        self._unread: list[ArrivedBlock] = []  # blocks whose reads have not been validated yet
        self._leaving: list[ArrivedBlock] = []

    def expect(self, message: Expect) -> None:
        """A buffer will arrive: its readers park from now on."""
        self._expected.add(message.buffer)
        self._parking.hold((), (message.buffer,), self._holds)

    def arrived(self, message: Arrived) -> None:
        """Continue with the waiters: the memory has arrived, or will not.

        Raises:
            ContextPoisoned, Unrecoverable: The context is dead.
        """
        buffer = message.buffer
        if buffer not in self._expected:
            return
        self._expected.discard(buffer)
        failure = message.failure
        try:
            block = self._failed(message.nbytes, failure) if failure is not None else self._block(message)
        except (ContextPoisoned, Unrecoverable):
            raise
        except AccelError as e:  # it cannot be opened here
            block = self._failed(message.nbytes, as_failure(buffer, self._reason(message, e)))
        block.buffer = buffer
        self._buffers[buffer] = block
        self._parking.release((), (buffer,), self._holds)

    def advance(self) -> bool:
        """Check the data read, and release unused memory; True while something is in use.

        Called after the streams were polled, before their ops are settled.
        """
        if not (self._unread or self._leaving):
            return False
        unread = [block for block in self._unread if not block.readers or not block.idle()]
        for block in self._unread:
            if block not in unread:
                self._settle(block)
        self._leaving[:] = [block for block in self._leaving if not block.idle()]
        self._unread = [block for block in unread if block.readers or block.buffer in self._buffers]
        return bool(self._unread or self._leaving)

    def close(self) -> None:
        """The context ends."""
        self._exporters.close()

    def _failed(self, nbytes: int, failure: FailureMessage) -> Block:
        block = Block(NO_MEMORY, nbytes)
        block.source = Pending(failure.id, 0, None, ())
        block.source.fail(failure)
        return block

    def _block(self, message: Arrived) -> ArrivedBlock:
        where: list[Any] = message.where
        nbytes = message.nbytes
        if not where:
            return ArrivedBlock(Memory(SOMEWHERE, 0), self._leaving, None)
        if isinstance(where[0], Memory):
            memory, offset = where
            return ArrivedBlock(Memory(memory.address + offset, nbytes, (memory, memory.owner)), self._leaving, None)
        base, offset, *exporter = where
        memory = Memory(self._attached.address(base, offset), nbytes)
        block = ArrivedBlock(memory, self._leaving, (exporter[0], exporter[1]) if exporter else None)
        if block.exporter is not None:
            block.source = Pending(message.buffer, 0, None, ())
            self._unread.append(block)
        return block

    def _settle(self, block: ArrivedBlock) -> None:
        """All that was enqueued to read the block has been executed."""
        source = block.source
        if source is None or source.state != FLYING or block.exporter is None:
            return
        if self._exporters.ended(*block.exporter):
            source.fail(as_failure(source.id, _lost(block.exporter[0])))
        else:
            source.state = OK

    def _reason(self, message: Arrived, error: AccelError) -> AccelError:
        """Why memory cannot be opened: a driver takes away that of a process that ends before the process has ended."""
        exporter = message.where[2:]
        ends = isinstance(error, DriverError) and exporter and self._exporters.ended(exporter[0], exporter[1], ENDING)
        return _lost(exporter[0]) if ends else error


def _lost(pid: int) -> ContextPoisoned:
    return ContextPoisoned(f"the context that the array was copied from ended while it was copied (process {pid})")
