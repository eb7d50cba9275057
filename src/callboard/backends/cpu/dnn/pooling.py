"""Pooling on the CPU: views of all windows, reduced by NumPy."""

from collections.abc import Callable
from typing import Any

import numpy as np

from callboard.backends.cpu.dnn.images import Array, compute_type, viewer_of_image
from callboard.core.library import Entry
from callboard.kernel.dnn.pooling import AvgPool, Windows, windows_of

__all__ = ["TABLE"]


def windowed(x: Array, windows: Windows, fill: float) -> Array:
    """``[n, c, *counts, *window]``: a view of the padded array, of which only the padding is copied."""
    if any(n for pair in windows.padding for n in pair):
        x = np.pad(x, [(0, 0), (0, 0), *windows.padding], constant_values=fill)
    axes = tuple(range(2, x.ndim))
    reach = tuple((n - 1) * d + 1 for n, d in zip(windows.extent, windows.dilation, strict=True))
    every: Array = np.lib.stride_tricks.sliding_window_view(x, reach, axes)
    steps = tuple(slice(None, None, s) for s in windows.stride)
    inner = tuple(slice(None, None, d) for d in windows.dilation)
    return every[(slice(None), slice(None), *steps, *inner)]


def divisors(windows: Windows, spatial: tuple[int, ...], counts: tuple[int, ...], include_pad: bool) -> Any:
    """How many elements the average of each window is of: a number, or one for each window."""
    if include_pad:
        return float(np.prod(windows.extent))
    inside = np.ones(())
    for n, many, window, stride, (before, _) in zip(
        spatial, counts, windows.extent, windows.stride, windows.padding, strict=True
    ):
        start = np.arange(many) * stride - before
        inside = np.multiply.outer(inside, np.minimum(start + window, n) - np.maximum(start, 0))
    return inside


def average(op: AvgPool) -> Callable[..., None]:
    """``plan(x, out)``."""
    read = viewer_of_image(op.x.layout, op.layout)
    made = op.infer()["out"] if op.out is None else op.out.layout
    write = viewer_of_image(made, op.layout)
    windows, wide = windows_of(op, op.x.ndim - 2), compute_type(op.x.dtype)

    def work(x: int, out: int) -> None:
        array, target = read(x), write(out)
        found = windowed(array.astype(wide), windows, 0)
        sums = found.sum(tuple(range(found.ndim - len(windows.extent), found.ndim)))
        by = divisors(windows, array.shape[2:], target.shape[2:], op.count_include_pad)
        target[...] = sums / np.asarray(by, wide)

    return work


TABLE = {
    AvgPool: Entry(lambda _, op: average(op), inline=True),
}
