"""The kernels of ``data/sparse.cu``."""

import ctypes
from collections.abc import Callable
from ctypes import c_int, c_int64, c_void_p
from typing import TYPE_CHECKING

from callboard.backends.cuda.launching import THREADS, kernel_launcher, linear_grid

if TYPE_CHECKING:
    from callboard.backends.cuda.device import CudaDevice

__all__ = ["SparseArgs", "launcher"]

WARP = 32
SCAN_THREADS = 1024


class SparseArgs(ctypes.Structure):
    """``SparseArgs`` of the kernels."""

    _fields_ = (
        ("src", c_void_p),
        ("out", c_void_p),
        ("first", c_void_p),
        ("second", c_void_p),
        ("first_out", c_void_p),
        ("second_out", c_void_p),
        ("pointers", c_void_p),
        ("count", c_void_p),
        ("faults", c_void_p),
        ("major", c_int64),
        ("minor", c_int64),
        ("entries", c_int64),
        ("room", c_int64),
        ("major_step", c_int64),
        ("minor_step", c_int64),
        ("coordinates", c_int),
        ("ordered", c_int),
    )


def launcher(device: "CudaDevice", name: str, items: int, args: SparseArgs) -> Callable[[int], None]:
    """A function that launches a kernel for so many items on a stream; may compile now.

    ``count`` and ``write`` have a warp for each item, ``scan`` one block for all.
    """
    grid, threads = linear_grid(items), THREADS
    if name.startswith(("count", "write")):
        grid = linear_grid(items * WARP)
    elif name.startswith("scan"):
        grid, threads = 1, SCAN_THREADS
    return kernel_launcher(device.driver, device.kernels.get("sparse", name), grid, (threads, 1), args)
