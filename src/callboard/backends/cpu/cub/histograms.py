"""Histograms."""

from collections.abc import Callable
from typing import Any

import numpy as np

from callboard.backends.cpu.cub.operators import Array
from callboard.backends.cpu.views import viewer
from callboard.core.errors import ShapeError
from callboard.core.library import plans
from callboard.kernel import cub

__all__ = ["even", "ranged"]

Plan = Callable[..., None]
CHUNK = 1 << 16
"""Samples at a time, so that intermediate values stay in the cache."""


def _counter(op: Any) -> Callable[[int, int, int, Callable[[Array], Array]], None]:
    """``count(x, out, bins, places)``: where the samples belong, -1 for nowhere, is asked chunk by chunk."""
    x_of, out_of = viewer(op.x.layout), viewer(op.infer()["out"] if op.out is None else op.out.layout)
    channels = op.channels

    def of_line(samples: Array, bins: int, places: Callable[[Array], Array]) -> Array:
        found = np.zeros(bins + 1, np.int64)
        for begin in range(0, samples.size, CHUNK):
            found += np.bincount(places(samples[begin : begin + CHUNK]) + 1, minlength=bins + 1)
        return found[1:]

    def count(x: int, out: int, bins: int, places: Callable[[Array], Array]) -> None:
        array, result = x_of(x), out_of(out)
        if channels is None:
            result[...] = of_line(array.reshape(-1), bins, places)
            return
        for channel in range(channels):
            result[channel] = of_line(array[..., channel].reshape(-1), bins, places)

    return count


@plans(cub.HistogramEven)
def even(op: "cub.HistogramEven") -> Plan:
    """``run(x, lower, upper, out)``."""
    count, bins, tag = _counter(op), op.bins, type(op).__struct_config__.tag

    def run(x: int, lower: float, upper: float, out: int) -> None:
        if not (np.isfinite(lower) and np.isfinite(upper) and lower < upper):
            raise ShapeError(f"{tag}: lower is {lower} and upper {upper}; they must be finite, the lower one less")
        scale = bins / (upper - lower)

        def places(samples: Array) -> Array:
            wide = samples.astype(np.float64)
            inside = (wide >= lower) & (wide < upper)
            at = np.floor((np.where(inside, wide, lower) - lower) * scale).astype(np.int64)
            return np.where(inside, np.minimum(at, bins - 1), -1)

        count(x, out, bins, places)

    return run


@plans(cub.HistogramRange)
def ranged(op: "cub.HistogramRange") -> Plan:
    """``run(x, levels, out)``."""
    count, levels_of = _counter(op), viewer(op.levels.layout)
    bins = op.levels.shape[0] - 1

    def run(x: int, levels: int, out: int) -> None:
        line = levels_of(levels)
        line = line.astype(np.float32) if line.dtype.itemsize == 2 and line.dtype.kind not in "iu" else line

        def places(samples: Array) -> Array:
            at = np.searchsorted(line, samples.astype(line.dtype, copy=False), side="right") - 1
            return np.where(at < bins, at, -1)

        count(x, out, bins, places)

    return run
