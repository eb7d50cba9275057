"""``rows_of``: transfers that copy engines do by themselves: rows at a pitch, in slices."""

from typing import NamedTuple

from callboard.core.layout import Layout

__all__ = ["Rows", "rows_of"]

MIN_ROW = 64
"""Bytes of a row below which the cost of each row exceeds that of packing them first."""
MAX_PITCH = 1 << 31
"""Bytes between rows; CUDA's copies take less than this (``CU_DEVICE_ATTRIBUTE_MAX_PITCH``)."""


class Rows(NamedTuple):
    """A transfer of ``depth`` slices of ``height`` rows, each of ``width`` adjacent bytes.

    Attributes:
        src_pitch, out_pitch: Bytes from row to row.
        src_rows, out_rows: Rows from slice to slice.
    """

    width: int
    height: int
    depth: int
    src_pitch: int
    out_pitch: int
    src_rows: int
    out_rows: int


def rows_of(src: Layout, out: Layout) -> Rows | None:
    """The transfer between two layouts of one dtype and shape; None if it is not one of rows.

    Adjacent axes that both sides walk without a gap count as one. What is left may be up to three axes: the last one
    adjacent on both sides, forwards, with rows of at least 64 bytes, and slices a whole number of rows apart. These are
    ``cuMemcpyAsync``, ``cuMemcpy2DAsync`` and ``cuMemcpy3DAsync``.
    """
    item = src.dtype.itemsize
    if not src.size:
        return Rows(0, 0, 0, 0, 0, 0, 0)
    axes: list[tuple[int, int, int]] = []  # (extent, step of src, step of out), the last axis first
    for extent, step, out_step in zip(reversed(src.shape), reversed(src.strides), reversed(out.strides), strict=True):
        if extent == 1:
            continue
        if step <= 0 or out_step <= 0:
            return None
        if axes:
            inner, inner_step, inner_out = axes[-1]
            if step == inner * inner_step and out_step == inner * inner_out:
                axes[-1] = (inner * extent, inner_step, inner_out)
                continue
        axes.append((extent, step, out_step))
    if not axes or axes[0][1:] != (1, 1):
        axes.insert(0, (1, 1, 1))
    if len(axes) > 3:
        return None
    width = axes[0][0] * item
    if len(axes) == 1:
        return Rows(width, 1, 1, width, width, 1, 1)
    height, pitch, out_pitch = axes[1][0], axes[1][1] * item, axes[1][2] * item
    if width < MIN_ROW or min(pitch, out_pitch) < width or max(pitch, out_pitch) >= MAX_PITCH:
        return None
    if len(axes) == 2:
        return Rows(width, height, 1, pitch, out_pitch, height, height)
    depth, plane, out_plane = axes[2][0], axes[2][1] * item, axes[2][2] * item
    if plane % pitch or out_plane % out_pitch or min(plane // pitch, out_plane // out_pitch) < height:
        return None
    return Rows(width, height, depth, pitch, out_pitch, plane // pitch, out_plane // out_pitch)
