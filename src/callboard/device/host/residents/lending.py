"""``Lendings``: the memory that the actors of one host have lent to the application (``ctx.ref``).

Hazards belong to memory. An array that is lent again, or overlaps with a lent one, must therefore be the same buffer:
ops that use two refs of one memory then run in order. Packages report which memory an array is a view of; the buffer is
all of that memory.
"""

import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from callboard.core.backend import Memory
from callboard.core.layout import Layout
from callboard.core.ref import GpuRef
from callboard.device.host.residents.operands import Adopted, AdoptedBlock, Pin, memory_of

__all__ = ["Lendings"]


class Lendings:
    """Makes arrays of actors buffers of the device. Any thread.

    Args:
        on_free: Called with a block when the last ref to it was dropped, on the admitting thread.
    """

    def __init__(self, on_free: Callable[[AdoptedBlock], None]) -> None:
        self._on_free = on_free
        self._lock = threading.Lock()
        # Keyed by start address; a block keeps its memory alive, so no other array can get the address.
        self._blocks: weakref.WeakValueDictionary[int, AdoptedBlock] = weakref.WeakValueDictionary()

    def adopt(self, array: Any, *, on_host: bool) -> Adopted:
        """Make an array a buffer, or part of one; the buffer keeps the array alive.

        Raises:
            TypeError: Not an array on this device, or an unsupported dtype.
        """
        found = memory_of("ctx.ref", array, on_host=on_host)
        address, layout = found.address, found.layout
        begin, nbytes = _whole(array if found.shared else found.owner, address, layout)
        with self._lock:
            block = self._blocks.get(begin)
            if block is None or block.nbytes < nbytes:
                owner = Pin(array) if isinstance(array, GpuRef) else found.owner
                block = self._blocks[begin] = AdoptedBlock(Memory(begin, nbytes, owner), self._on_free)
        return Adopted(block, layout, address - begin)


def _whole(array: Any, address: int, layout: Layout) -> tuple[int, int]:
    """Address and bytes of the memory that an array is a view of; of its own items if that is not known."""
    low, high = layout.span
    begin, nbytes = _told(array)
    if begin <= address + low and address + high <= begin + nbytes:
        return begin, nbytes
    return address + low, high - low


def _told(array: Any) -> tuple[int, int]:
    if isinstance(array, GpuRef):  # of ctx.device
        whole: tuple[int, int] = array._port.memory.extent(array.allocation.id)  # type: ignore[attr-defined]
        return whole
    if isinstance(array, np.ndarray):
        while isinstance(array.base, np.ndarray):
            array = array.base
        begin, end = np.lib.array_utils.byte_bounds(array)
        return begin, end - begin
    if hasattr(array, "untyped_storage"):  # torch
        storage = array.untyped_storage()
        return storage.data_ptr(), storage.nbytes()
    memory: Any = getattr(getattr(array, "data", None), "mem", None)  # CuPy
    return (memory.ptr, memory.size) if hasattr(memory, "size") and hasattr(memory, "ptr") else (0, 0)
