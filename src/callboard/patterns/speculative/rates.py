"""Measurements for adaptive speculation: acceptance rates by place, and the cost of a pass."""

from bisect import bisect_left, insort
from collections.abc import Sequence

__all__ = ["HitRates", "KeptRates", "SizeCosts"]

OPTIMISM = 0.7
"""The assumed acceptance rate while nothing is known."""

SLOWER = 0.1
"""Weight of a new time above the known one: most of the excess is noise of the machine."""

FASTER = 0.8
"""Weight of a new time that is below."""

TRUSTED = 2
"""Measurements until a size counts as known: the first one often includes one-time work."""


class KeptRates:
    """The acceptance rate of the token at each place, given that those before it were kept.

    Args:
        places: Tokens of a proposal at most.
        forget: Weight of earlier proposals relative to a new one.
        weight: Weight of the prior, in proposals.
        pool: The prior; None: :data:`OPTIMISM` at the first place, and elsewhere the estimate of the place before.
    """

    def __init__(self, places: int, forget: float, weight: float, pool: "KeptRates | None" = None) -> None:
        self._forget = forget
        self._weight = weight
        self._pool = pool
        self.tried = [0.0] * places
        self._kept = [0.0] * places

    def add(self, proposed: int, kept: int) -> None:
        """Count a proposal of ``proposed`` tokens, of which the first ``kept`` were kept."""
        for i in range(min(proposed, kept + 1)):
            self.tried[i] = self.tried[i] * self._forget + 1
            self._kept[i] = self._kept[i] * self._forget + (i < kept)

    def rates(self) -> list[float]:
        """The estimate at each place."""
        prior = None if self._pool is None else self._pool.rates()
        found: list[float] = []
        last = OPTIMISM
        for i, (tried, kept) in enumerate(zip(self.tried, self._kept, strict=True)):
            last = (kept + self._weight * (last if prior is None else prior[i])) / (tried + self._weight)
            found.append(last)
        return found

    def survival(self, k: int) -> list[float]:
        """The probability that a token, and all before it, are kept, for the first ``k``."""
        found: list[float] = []
        product = 1.0
        for rate in self.rates()[:k]:
            product *= rate
            found.append(product)
        return found


class HitRates(KeptRates):
    """The acceptance rate of the token at each place of a tree. The draft gives its likeliest tokens first.

    Rates of different tokens add up, since each token is kept or not, whatever its branch.
    """

    def add_hits(self, proposed: int, hits: Sequence[int]) -> None:
        """Count a proposal of ``proposed`` tokens, of which those at the places ``hits`` were kept."""
        for i in range(proposed):
            self.tried[i] = self.tried[i] * self._forget + 1
            self._kept[i] = self._kept[i] * self._forget + (i in hits)

    def rates(self) -> list[float]:
        prior = None if self._pool is None else self._pool.rates()
        found: list[float] = []
        last = 1.0
        for i, (tried, kept) in enumerate(zip(self.tried, self._kept, strict=True)):
            guess = last * OPTIMISM if prior is None else prior[i]
            last = min(last, (kept + self._weight * guess) / (tried + self._weight))
            found.append(last)
        return found

    def survival(self, k: int) -> list[float]:
        return self.rates()[:k]


class SizeCosts:
    """Seconds by size, for sizes that were measured, and between them. More never costs less."""

    def __init__(self) -> None:
        self._seconds: dict[int, float] = {}
        self._times: dict[int, int] = {}
        self._sizes: list[int] = []  # that are known, ascending

    def add(self, size: int, seconds: float) -> None:
        """Add the measured seconds of a size."""
        known = self._seconds.get(size)
        times = self._times[size] = self._times.get(size, 0) + 1
        if times == TRUSTED:
            insort(self._sizes, size)
        if known is None or times <= TRUSTED:
            self._seconds[size] = seconds if known is None else min(seconds, known)
        elif seconds < known:
            self._seconds[size] = known + FASTER * (seconds - known)
        else:
            self._seconds[size] = known + SLOWER * (min(seconds, 2 * known) - known)

    @property
    def known(self) -> bool:
        """True if any size is known."""
        return bool(self._sizes)

    def covers(self, size: int) -> bool:
        """True if this size, or a smaller one, is known."""
        return bool(self._sizes) and self._sizes[0] <= size

    def line(self) -> "CostLine":
        """The costs as they are known now."""
        seconds: list[float] = []
        least = float("inf")
        for size in reversed(self._sizes):
            least = min(least, self._seconds[size])
            seconds.append(least)
        return CostLine(self._sizes, seconds[::-1])


class CostLine:
    """Straight lines between points.

    Below the first point, its seconds. Above the last one, the slope of the last two: where only one is known, more
    seems to cost nothing, so that it is tried.
    """

    def __init__(self, sizes: Sequence[int], seconds: Sequence[float]) -> None:
        self._sizes = sizes
        self._seconds = seconds

    def at(self, size: int) -> float:
        """Seconds; 0 if nothing is known."""
        sizes, seconds = self._sizes, self._seconds
        if not sizes:
            return 0.0
        if size <= sizes[0]:
            return seconds[0]
        if len(sizes) == 1:
            return seconds[0]
        right = min(bisect_left(sizes, size), len(sizes) - 1)
        slope = (seconds[right] - seconds[right - 1]) / (sizes[right] - sizes[right - 1])
        return seconds[right] + slope * (size - sizes[right])
