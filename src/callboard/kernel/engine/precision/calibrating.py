"""Ranges of values, found in histograms of all of them."""

from typing import Any

import numpy as np

from callboard.kernel.engine.precision.config import IBuilderConfig

__all__ = ["Range"]

Array = np.ndarray[Any, Any]
HALF = 4096
"""Bins on each side of 0."""
BINS, LEVELS = 2048, 255
CANDIDATES = 100


class Range:
    """The values that an input of a layer has taken.

    Every value is counted: a sample of evenly spread ones would see some channels only, where their number and the
    distance have a common divisor.
    """

    def __init__(self) -> None:
        self.low = np.inf
        self.high = -np.inf
        self._top = 0.0
        self._counts = np.zeros(2 * HALF, np.int64)

    def add(self, values: Array) -> None:
        """Take the values of a batch; those that are not finite are left out."""
        line = values.ravel()
        line = line[np.isfinite(line)].astype(np.float64)
        if not line.size:
            return
        low, high = float(line.min()), float(line.max())
        self.low, self.high = min(self.low, low), max(self.high, high)
        size = max(-low, high)
        if not self._top:
            self._top = size
            if not size:
                self._counts[HALF] += line.size
                return
        while size > self._top:  # bins of twice the width
            inner = self._counts.reshape(-1, 2).sum(1)
            self._counts[:] = 0
            self._counts[HALF // 2 : HALF // 2 + HALF] = inner
            self._top *= 2.0
        at = np.floor(line * (HALF / self._top)).astype(np.int64) + HALF
        self._counts += np.bincount(np.clip(at, 0, 2 * HALF - 1), minlength=2 * HALF)

    def limits(self, config: IBuilderConfig) -> tuple[float, float]:
        """Where the range begins and ends; 0 is inside."""
        if self.low > self.high:
            return 0.0, 0.0
        low, high = min(self.low, 0.0), max(self.high, 0.0)
        if low == high:
            return low, high
        if config.calibrator == "percentile":
            return self._percentile(low, high, config.percentile)
        if config.calibrator == "entropy":
            most = self._entropy(low, high)
            return max(low, -most), min(high, most)
        if config.calibrator == "mse":
            share = self._mse(low, high)
            return low * share, high * share
        return low, high

    def _percentile(self, low: float, high: float, percentile: float) -> tuple[float, float]:
        """The edges of the bins with the quantiles."""
        below = np.cumsum(self._counts)
        outside = (1.0 - percentile) / 2 * below[-1]
        first = int(np.searchsorted(below, outside, "right"))
        last = int(np.searchsorted(below, below[-1] - outside, "left"))
        width = self._top / HALF
        return max(low, min((first - HALF) * width, 0.0)), min(high, max((last + 1 - HALF) * width, 0.0))

    def _mse(self, low: float, high: float) -> float:
        """The share of the range that has the least mean square error of rounding and cutting."""
        centres = (np.arange(2 * HALF) + 0.5 - HALF) * (self._top / HALF)
        shares = np.linspace(1.0, 0.1, CANDIDATES)
        errors = []
        for share in shares:
            cut = centres - np.clip(centres, low * share, high * share)
            inside = self._counts[cut == 0.0].sum()
            step = (high - low) * share / LEVELS
            errors.append(float(np.sum(self._counts * cut * cut)) + float(inside) * step * step / 12)
        return float(shares[int(np.argmin(errors))])

    def _entropy(self, low: float, high: float) -> float:
        """The size above which values are cut: that whose quantised histogram has the least divergence."""
        sizes = self._counts[HALF:] + self._counts[HALF - 1 :: -1]
        # A histogram with holes is quantised without a loss anywhere: few values have few bins.
        bins = min(BINS, 1 << max(int(sizes.sum()) // 16, 1).bit_length() - 1)
        top = max(-low, high)
        if bins < 2 * LEVELS:
            return top
        counts = sizes.reshape(bins, -1).sum(1)
        width = self._top / bins
        best, found = np.inf, top
        for end in range(LEVELS // 2 + 1, bins + 1, max(bins // 128, 1)):
            most = end * width
            levels = round(LEVELS * most / (min(high, most) + min(-low, most)))  # of one side
            if levels > end:
                continue
            kept = counts[:end].astype(np.float64)
            kept[-1] += counts[end:].sum()  # those cut become the largest
            inside = counts[:end] > 0
            level = np.arange(end) * levels // end
            total = np.bincount(level, counts[:end], levels)
            places = np.bincount(level, inside, levels)
            spread = np.where(inside, (total / np.maximum(places, 1))[level], 0.0)
            divergence = _divergence(kept, spread)
            if divergence < best:
                best, found = divergence, most
        return min(found, top)


def _divergence(p: Array, q: Array) -> float:
    """Kullback-Leibler divergence of two histograms."""
    p, q = p / p.sum(), q / max(q.sum(), 1e-30)
    where = p > 0
    return float(np.sum(p[where] * np.log(p[where] / np.maximum(q[where], 1e-12))))
