"""``Bounded``: a histogram with fixed bounds, as Prometheus wants it."""

from bisect import bisect_left
from itertools import accumulate

__all__ = ["SECONDS", "Bounded"]

SECONDS = tuple(base * 10.0**power for power in range(-6, 2) for base in (1, 2.5, 5))
"""Bounds from a microsecond to 50 seconds."""


class Bounded:
    """Counts of values up to each bound.

    Args:
        bounds: Ascending.

    Attributes:
        sum: Sum of the values.
    """

    __slots__ = ("_bounds", "_counts", "sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def add(self, value: float) -> None:
        """Count a value."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self.sum += value

    @property
    def count(self) -> int:
        """Number of values."""
        return sum(self._counts)

    @property
    def buckets(self) -> tuple[tuple[float, int], ...]:
        """Bounds, and the number of values up to each."""
        return tuple(zip(self._bounds, accumulate(self._counts), strict=False))
