"""The kernels of ``data/sparse_lt.cu``."""

import ctypes
from collections.abc import Callable
from ctypes import c_int64, c_ushort, c_void_p
from typing import TYPE_CHECKING

from callboard.backends.cuda.launching import THREADS, kernel_launcher, linear_grid

if TYPE_CHECKING:
    from callboard.backends.cuda.device import CudaDevice

__all__ = ["StructuredArgs", "launcher"]


class StructuredArgs(ctypes.Structure):
    """``StructuredArgs`` of ``data/sparse_lt.cu``."""

    _fields_ = (
        *((name, c_void_p) for name in ("x", "out", "status")),
        *((name, c_int64) for name in ("matrices", "rows", "groups", "x_matrix", "x_row", "out_matrix", "out_row")),
        ("room", c_int64),
        ("choices", c_ushort * 90),
    )


def launcher(device: "CudaDevice", name: str, args: StructuredArgs) -> Callable[[int], None]:
    """A function that launches a kernel on a stream with the current contents of ``args``; may compile now."""
    count = args.matrices * args.rows * args.groups
    return kernel_launcher(device.driver, device.kernels.get("sparse_lt", name), linear_grid(count), (THREADS, 1), args)
