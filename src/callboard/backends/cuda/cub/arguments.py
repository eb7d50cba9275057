"""Arguments of the kernels in ``data/cub*.cu``, and how these are launched."""

import ctypes
from collections.abc import Callable
from ctypes import c_double, c_int, c_int64, c_uint64, c_void_p
from typing import TYPE_CHECKING

from callboard.backends.cuda.launching import THREADS, kernel_launcher, linear_grid
from callboard.core.dtype import DType

if TYPE_CHECKING:
    from callboard.backends.cuda.device import CudaDevice

__all__ = ["CubArgs", "element_kernel", "move_kernel", "stored_name"]


class CubArgs(ctypes.Structure):
    """``CubArgs`` of the kernels."""

    _fields_ = (
        *((name, c_void_p) for name in ("a", "b", "c", "d", "out", "second")),
        *((name, c_int64) for name in ("n", "m", "k", "room")),
        *((name, c_double) for name in ("lower", "upper", "scale")),
        ("start", c_uint64),
        *((name, c_int) for name in ("bins", "shared", "exclusive", "least")),
    )


def stored_name(dtype: DType) -> str:
    """The type name in kernels; bool is stored as a byte."""
    return "u8" if dtype.kind == "bool" else dtype.name


def element_kernel(
    device: "CudaDevice", work: str, dtype: DType, args: CubArgs, grid: int, shared: int = 0
) -> Callable[[int], None]:
    """A function that launches a kernel of ``data/cub.cu`` on a stream; may compile now."""
    name = stored_name(dtype)
    function = device.kernels.get(f"cub-{name}", f"{work}_{name}")
    return kernel_launcher(device.driver, function, grid, (THREADS, 1), args, shared)


def move_kernel(device: "CudaDevice", name: str, items: int, args: CubArgs) -> Callable[[int], None]:
    """Return a function that launches a kernel of ``data/cub_moves.cu`` for ``items`` items; may compile now."""
    function = device.kernels.get("cub_moves", name)
    return kernel_launcher(device.driver, function, linear_grid(items), (THREADS, 1), args)
