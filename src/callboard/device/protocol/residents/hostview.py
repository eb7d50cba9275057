"""``host_view``: memory of this process as a NumPy array."""

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np

from callboard.core.layout import Layout

__all__ = ["host_array", "host_view"]

# One ctypes type as long as any address space: a type for each size would cost more than the view.
_buffer_at: Callable[[int], Any] = (ctypes.c_char * (1 << 46)).from_address


def host_array(address: int, dtype: "np.dtype[Any]", shape: tuple[int, ...]) -> "np.ndarray[Any, Any]":
    """Like :func:`host_view`, for a writable row-major array."""
    return np.ndarray(shape, dtype, _buffer_at(address))


def host_view(address: int, layout: Layout, writable: bool) -> "np.ndarray[Any, Any]":
    """Return a NumPy array over memory whose element 0 is at ``address``. It keeps nothing alive."""
    dtype, (low, _) = layout.dtype.np, layout.span
    strides = tuple(s * dtype.itemsize for s in layout.strides)
    if layout.size == 0:
        view: np.ndarray[Any, Any] = np.ndarray(layout.shape, dtype)
    else:
        view = np.ndarray(layout.shape, dtype, _buffer_at(address + low), -low, strides)
    view.flags.writeable = writable
    return view
