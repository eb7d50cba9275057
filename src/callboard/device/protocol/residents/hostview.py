"""``host_view``: memory of this process as a NumPy array."""

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np

from callboard.core.layout import Layout

__all__ = ["held_array", "host_array", "host_view"]

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


def held_array(address: int, layout: Layout, dtype: "np.dtype[Any]", owner: object) -> "np.ndarray[Any, Any]":
    """Return a writable array that keeps ``owner``, of a dtype as large as the layout's.

    The memory is not accessed, and may be that of a GPU.
    """
    item = dtype.itemsize
    strides = tuple(step * item for step in layout.strides)
    # As octets: NumPy has no notation for low precisions.
    interface = {
        "version": 3,
        "shape": layout.shape,
        "typestr": f"|V{item}",
        "strides": strides,
        "data": (address, False),
    }
    return np.asarray(_Interface(interface, owner)).view(dtype)


class _Interface:
    __slots__ = ("__array_interface__", "owner")

    def __init__(self, interface: dict[str, Any], owner: object) -> None:
        self.__array_interface__ = interface
        self.owner = owner
