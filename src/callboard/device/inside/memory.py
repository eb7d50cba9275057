"""``LocalMemory``: the arrays of one resident actor by id, as its own ops name them."""

import itertools
from collections import deque
from typing import Any

from callboard.core.backend import AccelDevice, Memory
from callboard.device.host.context.blocks import Block, BlockPool

__all__ = ["LocalMemory"]


class LocalMemory:
    """Blocks that the actor's ops made, and memory of arrays of its own that they use.

    All work of the actor is on one stream, so a released block may be reused at once: the next use is ordered after
    the previous one.

    Args:
        device: Open.
        limit: Most bytes in blocks; None for no limit.

    Attributes:
        released: Ids of arrays without a ref. Any thread appends.
    """

    def __init__(self, device: AccelDevice, limit: int | None) -> None:
        self.released: deque[int] = deque()
        self._pool = BlockPool(device, limit)
        self._made: dict[int, Block] = {}
        self._borrowed: dict[int, Memory] = {}
        self._ids = itertools.count(1)

    def make(self, nbytes: int) -> tuple[int, int]:
        """Take memory for a new array; gives its id and its address.

        Raises:
            OutOfMemory: The device has none, or the limit is reached.
        """
        self._give_back()
        block = self._pool.take(nbytes)
        number = next(self._ids)
        self._made[number] = block
        return number, block.address

    def borrow(self, address: int, nbytes: int, owner: Any) -> int:
        """Name memory of an array that is not ours, which keeps ``owner`` alive; gives its id."""
        self._give_back()
        number = next(self._ids)
        self._borrowed[number] = Memory(address, nbytes, owner)
        return number

    def address(self, number: int) -> int:
        """Start of an array's memory."""
        block = self._made.get(number)
        return block.address if block is not None else self._borrowed[number].address

    def extent(self, number: int) -> tuple[int, int]:
        """Address and bytes of an array's memory."""
        block = self._made.get(number)
        if block is not None:
            return block.address, block.nbytes
        memory = self._borrowed[number]
        return memory.address, memory.nbytes

    def trim(self) -> None:
        """Return cached memory to the device; the stream is idle."""
        self._give_back()
        self._pool.trim()

    def close(self) -> None:
        """Release everything that has no ref; the stream is idle."""
        self.trim()
        self._borrowed.clear()

    @property
    def used(self) -> int:
        """Bytes in blocks that are in use."""
        return self._pool.used

    def _give_back(self) -> None:
        while self.released:
            number = self.released.popleft()
            block = self._made.pop(number, None)
            if block is None:
                self._borrowed.pop(number, None)
            elif block.memory.nbytes:
                self._pool.give(block)
