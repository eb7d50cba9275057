"""``ExternalBlocks``: blocks whose memory is not the pool's: managed memory, and memory of several processes."""

import os
import time

from callboard.core.backend import AccelDevice, Memory
from callboard.core.errors import OutOfMemory, UnsupportedOp
from callboard.core.op import Op
from callboard.device.host.context.blocks import Block, BlockPool
from callboard.kernel.ipc.library import Shared
from callboard.kernel.ipc.messages import IpcMemHandle, OpenMemHandle
from callboard.kernel.ipc.sharing import ImportLease, check_alive

__all__ = ["ExternalBlocks"]

LOOK = 0.1
"""Seconds between two checks whether other processes have closed memory to be freed."""


class BlockElsewhere(Block):
    """A block that goes back to the device, and not to the pool, when nothing in flight uses it."""

    __slots__ = ("_keeper", "lease")

    def __init__(self, memory: Memory, nbytes: int, keeper: "ExternalBlocks", lease: ImportLease | None = None) -> None:
        super().__init__(memory, nbytes)
        self._keeper = keeper
        self.lease = lease

    def give(self, pool: BlockPool) -> bool:
        self._keeper.leaving.append(self)
        return True


class ExternalBlocks:
    """Makes such blocks, and frees them.

    Args:
        device: Device that the memory belongs to.
        pool: Counts it, but for memory of other processes.

    Attributes:
        leaving: Blocks that the application has freed.
    """

    def __init__(self, device: AccelDevice, pool: BlockPool) -> None:
        self._device = device
        self._pool = pool
        self._next_look = 0.0
        self.leaving: list[BlockElsewhere] = []

    def take(self, op: Op, nbytes: int) -> Block:  # type: ignore[type-arg]
        """A block for the output of an op whose :attr:`memory <callboard.core.op.Op.memory>` is not the pool's.

        Raises:
            OutOfMemory, GpuRefStale, UnsupportedOp, AccelError
        """
        if op.memory == "opened":
            assert isinstance(op, OpenMemHandle)
            return self._open(op, nbytes)
        self.advance(look=True)
        pool, size = self._pool, max(nbytes, 1)
        if pool.limit is not None and pool.used + size > pool.limit:
            raise OutOfMemory(
                f"{nbytes:,} bytes requested, {pool.used:,} in use, memory_limit is {pool.limit:,}; free refs or raise "
                "the limit"
            )
        allocate = self._device.allocate_managed if op.memory == "managed" else self._device.allocate_shared
        block = BlockElsewhere(allocate(size), nbytes, self)
        pool.adopt(block)
        return block

    def advance(self, *, look: bool = False) -> bool:
        """Free unused blocks; True while something in flight keeps a block.

        Blocks that other processes have open are kept and checked again at intervals, or at once with ``look``.
        """
        if not self.leaving:
            return False
        now = time.monotonic()
        look = look or now >= self._next_look
        if look:
            self._next_look = now + LOOK
        waits, leaving, self.leaving = False, self.leaving, []
        for block in leaving:
            owner = block.memory.owner
            if not block.idle():
                waits = True
            elif not isinstance(owner, Shared) or (look and (owner.handle is None or owner.lease.returned())):
                self._free(block)
                continue
            self.leaving.append(block)
        return waits

    def close(self, blocks: list[Block]) -> None:
        """Let all of it go, including blocks that the application still has in ``blocks``; no work is in flight.

        The device frees its own when it is closed, except what others hold.
        """
        for block in (*self.leaving, *(b for b in blocks if isinstance(b, BlockElsewhere))):
            if block.lease is not None:
                self._free(block)
            elif isinstance(block.memory.owner, Shared):
                block.memory.owner.lease.close()
        self.leaving.clear()

    def _free(self, block: BlockElsewhere) -> None:
        memory, pool = block.memory, self._pool
        if block.lease is None:
            pool.used -= memory.nbytes
            pool.asked -= block.nbytes
        if isinstance(memory.owner, Shared):
            memory.owner.lease.close()
        self._device.release(memory)
        if block.lease is not None:
            block.lease.close()

    def _open(self, op: OpenMemHandle, nbytes: int) -> Block:
        handle = IpcMemHandle.from_bytes(bytes.fromhex(op.handle))
        check_alive("memory", handle.device, handle.generation, handle.pid, handle.started)
        if handle.pid == os.getpid():
            raise UnsupportedOp("the handle was exported by this process; use the array itself")
        lease = ImportLease(handle.lease)
        try:
            memory = self._device.open_shared(handle.handle, handle.nbytes)
        except BaseException:  # any exception: the exporter must learn that it is not open
            lease.close()
            raise
        block = BlockElsewhere(memory, nbytes, self, lease)
        block.address += handle.offset
        return block
