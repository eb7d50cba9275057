"""Small results on their way to the host, through page-locked slots."""

import ctypes
from collections.abc import Callable
from ctypes import c_void_p

from callboard.backends.cuda.driver import Driver
from callboard.core.backend import Readback, Status

__all__ = ["SLOT", "CudaReadback", "CudaStatus", "Slots"]

SLOT = 64
"""Bytes of a slot: the most that one readback brings, and a cache line."""
SLOTS = 1024
"""Slots page-locked at once. A host has that many numbers in flight seldom; page-locking more takes about 0.1 ms."""


class Slots:
    """Page-locked slots, each used by one readback at a time. Any thread."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._regions: list[int] = []
        self.free: list[int] = []
        self.free.append(self._more())  # ahead of time: page-locking makes all streams wait for each other

    def take(self) -> int:
        """The address of a free slot."""
        try:
            return self.free.pop()
        except IndexError:
            return self._more()

    def _more(self) -> int:
        region = c_void_p()
        self._driver.mem_alloc_host(ctypes.byref(region), SLOT * SLOTS)
        first = region.value or 0
        self._regions.append(first)
        self.free += range(first + SLOT, first + SLOT * SLOTS, SLOT)
        return first

    def close(self) -> None:
        """Release everything; nothing is in flight."""
        self.free.clear()
        for region in self._regions:
            self._driver.mem_free_host(region)
        self._regions.clear()


class CudaReadback(Readback):
    """A copy into a slot."""

    __slots__ = ("_nbytes", "_slot", "_slots")

    def __init__(self, slots: Slots, slot: int, nbytes: int) -> None:
        self._slots = slots
        self._slot = slot
        self._nbytes = nbytes

    def take(self) -> bytes:
        if not self._slot:
            raise RuntimeError("the bytes have been taken")
        taken = ctypes.string_at(self._slot, self._nbytes)
        self._give_back()
        return taken

    def _give_back(self) -> None:
        slot, self._slot = self._slot, 0
        self._slots.free.append(slot)

    def __del__(self) -> None:
        # Dropped untaken when its op failed; that is known only after the stream has passed the copy.
        if self._slot:
            self._give_back()


class CudaStatus(Status):
    """The outcome of a launch in device memory.

    Args:
        address, nbytes: Address and size in the memory of its plan.
        check: Raises the error for the words of the status.
        keeps: Host memory that the work needs.
    """

    __slots__ = ("_check", "_keeps", "address", "nbytes")

    def __init__(self, address: int, nbytes: int, check: Callable[[bytes], object], keeps: object = None) -> None:
        self.address = address
        self.nbytes = nbytes
        self._check = check
        self._keeps = keeps

    def check(self, outcome: bytes) -> None:
        self._check(outcome)
