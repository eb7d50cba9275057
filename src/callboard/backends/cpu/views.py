"""NumPy arrays over memory that is known by its address."""

import ctypes
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from callboard.core.layout import Layout

__all__ = ["array_at", "viewer"]

# One ctypes type as long as any address space: NumPy checks that strides stay inside the buffer, and a new ctypes type
# for each size would cost more than the view. The layouts have been checked against their allocations before.
_buffer_at: Callable[[int], Any] = (ctypes.c_char * (1 << 46)).from_address


@lru_cache(maxsize=4096)
def viewer(layout: Layout) -> "Callable[[int], np.ndarray[Any, Any]]":
    """Return a function from the address of element 0 to the array of this layout.

    Any strides, negative and 0 included, and any dtype. The array keeps nothing alive. A call takes about 0.5 µs; a
    prepare makes the viewers, a launch calls them.
    """
    dtype, shape, low = layout.dtype.np, layout.shape, layout.span[0]
    strides = tuple(s * dtype.itemsize for s in layout.strides)
    make = np.ndarray
    if layout.size == 0:
        return lambda address: make(shape, dtype)
    if low == 0:
        return lambda address: make(shape, dtype, _buffer_at(address), 0, strides)
    return lambda address: make(shape, dtype, _buffer_at(address + low), -low, strides)


def array_at(address: int, layout: Layout) -> "np.ndarray[Any, Any]":
    """Return the array of this layout whose element 0 is at ``address``; see :func:`viewer`."""
    return viewer(layout)(address)
