"""``in_large_pages``: memory of another library in pages of 2 MiB, which random reads find faster."""

import contextlib
import ctypes
import mmap

import numpy as np
from numpy.typing import NDArray

__all__ = ["in_large_pages"]

LARGE = 2 << 20
"""Bytes of a large page."""
_COLLAPSE = 25
"""``MADV_COLLAPSE`` of Linux 6.1: move what is there into large pages now."""


def in_large_pages(array: NDArray[np.float32]) -> int:
    """Ask the kernel to have an array in large pages; nothing happens where it cannot, or refuses.

    Args:
        array: In one piece, of one dimension. It may be the part that was added to an array since the last call.

    Returns:
        Elements that need not be asked for again: those up to the end of the last large page that is full.
    """
    start = -(-array.ctypes.data // LARGE) * LARGE
    length = (array.ctypes.data + array.nbytes) // LARGE * LARGE - start
    if length <= 0 or not hasattr(mmap, "MADV_HUGEPAGE"):
        return 0
    with contextlib.suppress(OSError, AttributeError):
        advise = ctypes.CDLL(None).madvise
        for advice in (mmap.MADV_HUGEPAGE, _COLLAPSE):
            advise(ctypes.c_void_p(start), ctypes.c_size_t(length), advice)
    return (start + length - array.ctypes.data) // array.itemsize
