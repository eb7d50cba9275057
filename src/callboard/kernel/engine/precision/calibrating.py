"""Ranges of values, found in samples of them."""

from typing import Any

import numpy as np

from callboard.kernel.engine.precision.config import IBuilderConfig

__all__ = ["Range"]

Array = np.ndarray[Any, Any]
MOST_SAMPLES = 1 << 16
"""Values of a batch that are kept, evenly spread; the extremes are those of all values."""
BINS, LEVELS = 2048, 128


class Range:
    """The values that an input of a layer has taken."""

    def __init__(self) -> None:
        self.low = np.inf
        self.high = -np.inf
        self._samples: list[Array] = []

    def add(self, values: Array) -> None:
        """Take the values of a batch; those that are not finite are left out."""
        line = values.ravel()
        line = line[np.isfinite(line)]
        if line.size:
            self.low, self.high = min(self.low, float(line.min())), max(self.high, float(line.max()))
            self._samples.append(line[:: -(-line.size // MOST_SAMPLES)].astype(np.float32))

    def limits(self, config: IBuilderConfig) -> tuple[float, float]:
        """Where the range begins and ends; 0 is inside."""
        if not self._samples:
            return 0.0, 0.0
        low, high = self.low, self.high
        samples = np.concatenate(self._samples)
        if config.calibrator == "percentile":
            outside = (1.0 - config.percentile) / 2
            low, high = (float(each) for each in np.quantile(samples, [outside, 1.0 - outside]))
        elif config.calibrator == "entropy":
            most = _threshold(np.abs(samples))
            low, high = max(low, -most), min(high, most)
        return min(low, 0.0), max(high, 0.0)


def _threshold(sizes: Array) -> float:
    """The size above which values are cut, by the least divergence of the quantised histogram; the largest of few."""
    top = float(sizes.max())
    bins = min(BINS, sizes.size // 16)  # a histogram with holes is quantised without a loss anywhere
    if top == 0.0 or bins < 2 * LEVELS:
        return top
    counts, edges = np.histogram(sizes, bins, (0.0, top))
    best, found = np.inf, top
    for end in range(LEVELS, bins + 1, max(bins // 128, 1)):
        kept = counts[:end].astype(np.float64)
        kept[-1] += counts[end:].sum()  # those cut become the largest
        inside = counts[:end] > 0
        level = np.arange(end) * LEVELS // end
        total = np.bincount(level, counts[:end], LEVELS)
        places = np.bincount(level, inside, LEVELS)
        spread = np.where(inside, (total / np.maximum(places, 1))[level], 0.0)
        divergence = _divergence(kept, spread)
        if divergence < best:
            best, found = divergence, float(edges[end])
    return found


def _divergence(p: Array, q: Array) -> float:
    """Kullback-Leibler divergence of two histograms."""
    p, q = p / p.sum(), q / max(q.sum(), 1e-30)
    where = p > 0
    return float(np.sum(p[where] * np.log(p[where] / np.maximum(q[where], 1e-12))))
