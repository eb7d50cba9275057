"""Copies on the device between any two layouts of one dtype and shape, worked out once per pair of layouts."""

import ctypes
import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from callboard.backends.cuda.axes import AXES, Axes, joint_axes
from callboard.backends.cuda.driver import MEMORY_DEVICE, Driver, Memcpy2D
from callboard.backends.cuda.launching import THREADS, CopyArgs, TransposeArgs, kernel_launcher, linear_grid, suffix
from callboard.core.errors import UnsupportedOp
from callboard.core.layout import Layout

if TYPE_CHECKING:
    from callboard.backends.cuda.kernels import Kernels

__all__ = ["Copier", "copier", "too_many_axes"]

Copier = Callable[[int, int, int], None]
"""``copy(stream, src, out)``: enqueue it; addresses of element 0."""

MIN_ROW = 64
"""Bytes of a row below which the copy engine's per-row cost exceeds a kernel's."""
MAX_PITCH = 1 << 31
MIN_TILE = 8
MAX_TILES = 1 << 31
LARGEST, ALIGNMENT = 16, 8
"""Bytes of the kernels' largest item, and its required alignment."""


def copier(driver: Driver, kernels: "Kernels", src: Layout, out: Layout) -> Copier:
    """Return the function that copies ``src`` to ``out``: one memory copy, pitched rows, or a kernel (may compile).

    Args:
        driver: The CUDA driver API.
        kernels: Kernels of the device.
        src: Any strides.
        out: Same shape and dtype; its elements do not overlap.

    Raises:
        UnsupportedOp: More than 32 axes that cannot be merged.
    """
    if out.size == 0:
        return lambda stream, src, out: None
    axes = joint_axes(out, src.strides)
    item = out.dtype.itemsize
    copy = _memory_copy(driver, axes, item, out.size) or _kernel_copy(driver, kernels, axes, item, out.size)
    return _shifted(copy, axes.src_first * item, axes.out_first * item)


def too_many_axes(axes: Axes) -> str | None:
    """The reason why the kernels cannot iterate over these axes, None if they can."""
    if len(axes.extents) <= AXES:
        return None
    return f"{len(axes.extents)} axes that cannot be merged; at most {AXES} (copy it in parts)"


def _shifted(copy: Copier, src_shift: int, out_shift: int) -> Copier:
    if src_shift == 0 and out_shift == 0:
        return copy
    return lambda stream, src, out: copy(stream, src + src_shift, out + out_shift)


def _memory_copy(driver: Driver, axes: Axes, item: int, size: int) -> Copier | None:
    extents, steps, out_steps = axes.extents, axes.src, axes.out
    if not extents or (len(extents) == 1 and steps == out_steps == (1,)):
        return _flat(driver, size * item)
    if len(extents) != 2 or steps[1] != 1 or out_steps[1] != 1:
        return None
    width, pitch, out_pitch = extents[1] * item, steps[0] * item, out_steps[0] * item
    if width < MIN_ROW or pitch < width or max(pitch, out_pitch) >= MAX_PITCH:
        return None
    return _pitched(driver, width, extents[0], pitch, out_pitch)


def _flat(driver: Driver, nbytes: int) -> Copier:
    memcpy = driver.memcpy_dtod

    def copy(stream: int, src: int, out: int) -> None:
        code = memcpy(out, src, nbytes, stream)
        if code:
            raise driver.error(code, "cuMemcpyDtoDAsync")

    return copy


def _pitched(driver: Driver, width: int, height: int, pitch: int, out_pitch: int) -> Copier:
    what = Memcpy2D(
        src_type=MEMORY_DEVICE, dst_type=MEMORY_DEVICE, src_pitch=pitch, dst_pitch=out_pitch, width=width, height=height
    )
    memcpy, where = driver.memcpy_2d, ctypes.addressof(what)

    def copy(stream: int, src: int, out: int) -> None:
        what.src_device, what.dst_device = src, out
        code = memcpy(where, stream)
        if code:
            raise driver.error(code, "cuMemcpy2DAsync")

    return copy


def _kernel_copy(driver: Driver, kernels: "Kernels", axes: Axes, item: int, size: int) -> Copier:
    """Return a copy in larger items, if they are adjacent on both sides and aligned to their size at the call."""
    why = too_many_axes(axes)
    if why is not None:
        raise UnsupportedOp(f"copy: {why}")
    single = _by_items(driver, kernels, axes, item, size)
    larger, by = _in_larger_items(axes, item)
    if by == 1:
        return single
    several = _by_items(driver, kernels, larger, item * by, size // by)
    alignment = min(item * by, ALIGNMENT)

    def copy(stream: int, src: int, out: int) -> None:
        (single if (src | out) % alignment else several)(stream, src, out)

    return copy


def _in_larger_items(axes: Axes, item: int) -> tuple[Axes, int]:
    """The same bytes in the largest items that the kernels take, and how many of the given ones each has."""
    *outer, last = axes.extents
    if axes.src[-1] != 1 or axes.out[-1] != 1:
        return axes, 1
    by = math.gcd(LARGEST // item, last, *axes.src[:-1], *axes.out[:-1])
    extents = (*outer, last // by)
    src, out = (tuple(step // by for step in steps[:-1]) for steps in (axes.src, axes.out))
    if last == by:
        return axes._replace(extents=tuple(outer), src=src, out=out), by
    return axes._replace(extents=extents, src=(*src, 1), out=(*out, 1)), by


def _by_items(driver: Driver, kernels: "Kernels", axes: Axes, item: int, size: int) -> Copier:
    return _transposing(driver, kernels, axes, item) or _strided(driver, kernels, axes, item, size)


def _strided(driver: Driver, kernels: "Kernels", axes: Axes, item: int, size: int) -> Copier:
    args = CopyArgs(count=size, axes=len(axes.extents))
    args.extent[: args.axes] = axes.extents
    args.src_step[: args.axes] = axes.src
    args.out_step[: args.axes] = axes.out
    function = kernels.get("memory", f"copy_{suffix(item, size)}")
    run = kernel_launcher(driver, function, linear_grid(size), (THREADS, 1), args)

    def copy(stream: int, src: int, out: int) -> None:
        args.src, args.out = src, out
        run(stream)

    return copy


def _transposing(driver: Driver, kernels: "Kernels", axes: Axes, item: int) -> Copier | None:
    """Return a copy by tiles, if the contiguous axes of source and destination differ."""
    col = len(axes.extents) - 1
    rows = [k for k in range(col) if axes.src[k] == 1]
    if not rows or axes.out[col] != 1 or axes.src[col] == 1:
        return None
    row = rows[0]
    if min(axes.extents[row], axes.extents[col]) < MIN_TILE:
        return None
    rest = [k for k in range(col) if k != row]
    side = 64 if item < 8 else 32
    tiles = math.prod(axes.extents[k] for k in rest) * -(-axes.extents[row] // side) * -(-axes.extents[col] // side)
    if tiles >= MAX_TILES:
        return None
    args = TransposeArgs(rows=axes.extents[row], cols=axes.extents[col], tiles=tiles, axes=len(rest))
    args.src_col, args.out_row = axes.src[col], axes.out[row]
    args.extent[: len(rest)] = [axes.extents[k] for k in rest]
    args.src_step[: len(rest)] = [axes.src[k] for k in rest]
    args.out_step[: len(rest)] = [axes.out[k] for k in rest]
    function = kernels.get("memory", f"transpose_{item}")
    run = kernel_launcher(driver, function, min(tiles, 1 << 16), (32, 8), args)

    def copy(stream: int, src: int, out: int) -> None:
        args.src, args.out = src, out
        run(stream)

    return copy
