"""``Recycled``: copies of arrays, in memory that earlier copies have left."""

import weakref
from collections import deque
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["Recycled"]

LARGE = 1 << 20
"""Bytes from which memory is used again; an allocator keeps smaller blocks by itself."""
KEPT = 4
"""Blocks that wait for an array at most."""


class Recycled:
    """Makes copies whose memory is used again when they and all their views have been dropped.

    The kernel clears each page that it gives to a process, which takes longer than to copy into it.
    """

    def __init__(self) -> None:
        self._free: deque[NDArray[np.uint8]] = deque(maxlen=KEPT)

    def copy(self, array: ArrayLike) -> NDArray[Any]:
        """A row-major copy, which the caller may write to."""
        source = np.asarray(array)
        if source.nbytes < LARGE or source.dtype.hasobject:
            return np.array(source, order="C")
        memory = self._taken(source.nbytes)
        owner = _Owner(memory)
        weakref.finalize(owner, self._free.append, memory).atexit = False
        made: NDArray[Any] = np.asarray(owner)[: source.nbytes].view(source.dtype).reshape(source.shape)
        np.copyto(made, source)
        return made

    def _taken(self, nbytes: int) -> NDArray[np.uint8]:
        """A block for so many bytes that is at most twice as large, the last one that was left; or a new one."""
        for _ in range(len(self._free)):
            try:
                memory = self._free.pop()
            except IndexError:  # another thread has taken it
                break
            if nbytes <= memory.nbytes <= 2 * nbytes:
                return memory
            self._free.appendleft(memory)
        return np.empty(nbytes, np.uint8)


class _Owner:
    """What arrays over a block keep; the block is free when it is dropped."""

    def __init__(self, memory: NDArray[np.uint8]) -> None:
        self.__array_interface__ = memory.__array_interface__
