"""Norms: an array multiplied by a number, in place."""

import ctypes
from collections.abc import Callable
from typing import TYPE_CHECKING

from callboard.backends.cuda.axes import AXES, joint_axes
from callboard.backends.cuda.launching import THREADS, kernel_launcher, linear_grid
from callboard.core.layout import layout_of
from callboard.kernel.fft.transform import Side

if TYPE_CHECKING:
    from callboard.backends.cuda.device import CudaDevice

__all__ = ["ScaleArgs", "scaler"]


class ScaleArgs(ctypes.Structure):
    """``ScaleArgs`` of ``data/fft.cu``."""

    _fields_ = (
        ("out", ctypes.c_void_p),
        ("count", ctypes.c_int64),
        ("factor", ctypes.c_double),
        ("extent", ctypes.c_int64 * AXES),
        ("step", ctypes.c_int64 * AXES),
        ("axes", ctypes.c_int),
    )


def scaler(device: "CudaDevice", side: Side, factor: float) -> Callable[[int, int], None]:
    """Return ``scale(stream, address)``, which multiplies the side whose element 0 is there; may compile now."""
    parts = (
        layout_of(side.real, (*side.shape, 2), (*(2 * s for s in side.strides), 1)) if side.is_complex else side.layout
    )
    axes = joint_axes(parts)
    args = ScaleArgs(count=parts.size, factor=factor, axes=max(len(axes.extents), 1))
    args.extent[0] = args.step[0] = 1
    args.extent[: len(axes.extents)] = axes.extents
    args.step[: len(axes.out)] = axes.out
    form = "flat" if args.axes == 1 and args.step[0] == 1 else "strided"
    function = device.kernels.get("fft", f"scale_{form}_{side.real.name}")
    run = kernel_launcher(device.driver, function, linear_grid(parts.size), (THREADS, 1), args)
    first = axes.out_first * side.real.itemsize

    def scale(stream: int, address: int) -> None:
        args.out = address + first
        run(stream)

    return scale
