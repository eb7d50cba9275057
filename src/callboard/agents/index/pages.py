"""``in_large_pages``: memory of another library in pages of 2 MiB, which random reads find faster."""

import contextlib
import ctypes
import mmap

import numpy as np
from numpy.typing import NDArray

__all__ = ["in_large_pages"]

_COLLAPSE = 25
"""``MADV_COLLAPSE`` of Linux 6.1: move what is there into large pages now."""


def in_large_pages(array: NDArray[np.float32]) -> None:
    """Ask the kernel to have an array in large pages; nothing happens where it cannot, or refuses."""
    start = -(-array.ctypes.data // mmap.PAGESIZE) * mmap.PAGESIZE
    length = (array.ctypes.data + array.nbytes - start) // mmap.PAGESIZE * mmap.PAGESIZE
    if length <= 0 or not hasattr(mmap, "MADV_HUGEPAGE"):
        return
    with contextlib.suppress(OSError, AttributeError):
        advise = ctypes.CDLL(None).madvise
        for advice in (mmap.MADV_HUGEPAGE, _COLLAPSE):
            advise(ctypes.c_void_p(start), ctypes.c_size_t(length), advice)
