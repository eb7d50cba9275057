"""Fills of any layout with one element, worked out once per layout."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from callboard.backends.cuda.axes import Axes, joint_axes
from callboard.backends.cuda.copies import too_many_axes
from callboard.backends.cuda.driver import Driver
from callboard.backends.cuda.launching import THREADS, FillArgs, kernel_launcher, linear_grid, suffix
from callboard.core.errors import UnsupportedOp
from callboard.core.layout import Layout

if TYPE_CHECKING:
    from callboard.backends.cuda.kernels import Kernels

__all__ = ["Filler", "filler"]

Filler = Callable[[int, int, bytes], None]
"""``fill(stream, out, item)``: enqueue it; the address of element 0 and the bytes of one element."""


def filler(driver: Driver, kernels: "Kernels", out: Layout) -> Filler:
    """Return the function that fills ``out``: a memset of elements, of pitched rows, or a kernel (may compile).

    Args:
        driver: The CUDA driver API.
        kernels: Kernels of the device.
        out: Any strides; its elements do not overlap.

    Raises:
        UnsupportedOp: More than 32 axes that cannot be merged.
    """
    if out.size == 0:
        return lambda stream, out, item: None
    axes = joint_axes(out)
    item = out.dtype.itemsize
    rows = _rows(axes)
    if rows is None:
        fill = _kernel_fill(driver, kernels, axes, item, out.size)
    elif item <= 4:
        fill = _memset(driver, item, *rows)
    else:
        words = _memset_words(driver, item, *rows)
        fill = _either(words, _kernel_fill(driver, kernels, axes, item, out.size))
    shift = axes.out_first * item
    return fill if shift == 0 else lambda stream, out, item: fill(stream, out + shift, item)


def _rows(axes: Axes) -> tuple[int, int, int] | None:
    """``(width, height, pitch)`` in elements if the axes are rows at a pitch; None if there are more."""
    match axes.extents, axes.out:
        case (), _:
            return 1, 1, 1
        case (n,), (1,):
            return n, 1, n
        case (n,), (step,):
            return 1, n, step
        case (height, width), (pitch, 1):
            return width, height, pitch
    return None


def _memset(driver: Driver, item: int, width: int, height: int, pitch: int) -> Filler:
    flat = {1: driver.memset_8, 2: driver.memset_16, 4: driver.memset_32}[item]
    rows = {1: driver.memset_2d_8, 2: driver.memset_2d_16, 4: driver.memset_2d_32}[item]

    def fill_flat(stream: int, out: int, value: bytes) -> None:
        driver.check(flat(out, int.from_bytes(value, "little"), width, stream), "cuMemsetD*Async")

    def fill_rows(stream: int, out: int, value: bytes) -> None:
        code = rows(out, pitch * item, int.from_bytes(value, "little"), width, height, stream)
        driver.check(code, "cuMemsetD2D*Async")

    return fill_flat if height == 1 else fill_rows


def _memset_words(driver: Driver, item: int, width: int, height: int, pitch: int) -> Filler:
    """For elements of several equal 32-bit words, 0 above all."""
    words = item // 4
    memset = _memset(driver, 4, width * words, height, pitch * words)
    return lambda stream, out, value: memset(stream, out, value[:4])


def _either(words: Filler, any_value: Filler) -> Filler:
    def fill(stream: int, out: int, value: bytes) -> None:
        if value == value[:4] * (len(value) // 4):
            words(stream, out, value)
        else:
            any_value(stream, out, value)

    return fill


def _kernel_fill(driver: Driver, kernels: "Kernels", axes: Axes, item: int, size: int) -> Filler:
    why = too_many_axes(axes)
    if why is not None:
        raise UnsupportedOp(f"fill: {why}")
    args = FillArgs(count=size, axes=max(len(axes.extents), 1))
    args.extent[0] = 1
    args.extent[: len(axes.extents)] = axes.extents
    args.step[: len(axes.extents)] = axes.out
    function = kernels.get("memory", f"fill_{suffix(item, size)}")
    run = kernel_launcher(driver, function, linear_grid(size), (THREADS, 1), args)

    def fill(stream: int, out: int, value: bytes) -> None:
        args.out = out
        args.value[0] = int.from_bytes(value[:8], "little")
        args.value[1] = int.from_bytes(value[8:], "little")
        run(stream)

    return fill
