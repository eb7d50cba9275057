"""Axes of strided work: the fewest that reach the same elements."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from callboard.core.layout import Layout

__all__ = ["AXES", "Axes", "is_wide", "joint_axes", "merged_axes"]

AXES = 32
"""The maximum number of axes the kernels take. More, of 2 elements each at least, exceed 8 G elements."""


class Axes(NamedTuple):
    """Axes of an element-wise transfer, the one with the longest steps in ``out`` first.

    Attributes:
        extents: Extent of each axis, > 1.
        src: Step of each axis in the source, in elements.
        out: Step of each axis in the destination, in elements, > 0.
        src_first, out_first: Offset in elements from element 0 to where the steps start.
    """

    extents: tuple[int, ...]
    src: tuple[int, ...]
    out: tuple[int, ...]
    src_first: int
    out_first: int


def joint_axes(out: Layout, src: Sequence[int] | None = None) -> Axes:
    """Walk ``out`` in the order of its memory: backward axes turned round, extents of 1 dropped, neighbours merged.

    Args:
        out: The destination; its elements do not overlap.
        src: Steps of the source for the same axes; all 0 when None (one element for all).
    """
    steps = src if src is not None else (0,) * out.ndim
    src_first = out_first = 0
    axes = []
    for extent, step, out_step in zip(out.shape, steps, out.strides, strict=True):
        if extent == 1:
            continue
        if out_step < 0:
            src_first += (extent - 1) * step
            out_first += (extent - 1) * out_step
            step, out_step = -step, -out_step
        axes.append((out_step, step, extent))
    axes.sort(key=lambda axis: -axis[0])
    merged: list[tuple[int, int, int]] = []
    for out_step, step, extent in axes:
        if merged:
            wide_out, wide, wide_extent = merged[-1]
            if wide_out == out_step * extent and wide == step * extent:
                merged[-1] = (out_step, step, wide_extent * extent)
                continue
        merged.append((out_step, step, extent))
    return Axes(
        tuple(a[2] for a in merged), tuple(a[1] for a in merged), tuple(a[0] for a in merged), src_first, out_first
    )


def merged_axes(
    extents: Sequence[int], *steps: Sequence[int], ordered: bool = False
) -> tuple[list[int], list[list[int]]]:
    """The fewest axes that reach the same elements.

    Args:
        extents: Extent of each axis, none 0.
        steps: Steps of each array; the memory order of the first array decides the order of the axes.
        ordered: Keep the order of the axes.

    Returns:
        Extents, > 1 (of one axis at least, which may have 1), and for each array its steps.
    """
    axes = [(n, step) for n, *step in zip(extents, *steps, strict=True) if n > 1]
    if not ordered:
        axes.sort(key=lambda axis: -abs(axis[1][0]))
    merged: list[tuple[int, list[int]]] = []
    for n, step in axes:
        if merged and all(wide == s * n for wide, s in zip(merged[-1][1], step, strict=True)):
            merged[-1] = (merged[-1][0] * n, step)
        else:
            merged.append((n, step))
    merged = merged or [(1, [0] * len(steps))]
    return [n for n, _ in merged], [[step[i] for _, step in merged] for i in range(len(steps))]


def is_wide(extents: Sequence[int], *steps: Sequence[int]) -> bool:
    """True if a linear index or an offset of these axes exceeds 32 bits."""
    reaches = (sum((n - 1) * abs(s) for n, s in zip(extents, step, strict=True)) for step in steps)
    return max(math.prod(extents), *reaches) >= 1 << 31
