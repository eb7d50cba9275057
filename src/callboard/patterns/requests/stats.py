"""Figures of a server: counters, and distributions that cost a list index per value."""

import math
from bisect import bisect_left
from dataclasses import dataclass
from itertools import accumulate

__all__ = ["SECONDS", "SIZES", "Buckets", "Distribution", "Histogram", "ServerStats"]

STEPS = 16
"""Intervals per power of two: a quantile is off by at most 2.2 % of its value."""

SECONDS = (
    *(each / 1e4 for each in (5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000)),
    *(1.0, 2.5, 5.0, 10.0, 30.0, 60.0),
)
"""Bounds of seconds that a request takes."""
SIZES = tuple(float(1 << n) for n in range(11))
"""Bounds of batches."""

SMALLEST = 1e-9
BELOW = math.floor(math.log2(SMALLEST) * STEPS)


@dataclass(frozen=True)
class Distribution:
    """Statistics of many values; all are 0 before the first value.

    Attributes:
        count: Number of values.
        mean: Mean, exact.
        p50, p90, p99: Quantiles, to within 2.2 %.
        max: Maximum, exact.
        buckets: Bounds, and the number of values up to each of them, exact; empty where none are counted so.
        sum: Sum of the values: of whole numbers, exact.
    """

    count: int
    mean: float
    p50: float
    p90: float
    p99: float
    max: float
    buckets: tuple[tuple[float, int], ...] = ()
    sum: float = 0.0


class Histogram:
    """Counts of positive values in intervals that grow with the value. Zero and less count as the smallest.

    Args:
        bounds: Count the values up to each of these as well, ascending: what several processes count so can be added.
    """

    __slots__ = ("_bounds", "_by_bound", "_counts", "_max", "_sum")

    def __init__(self, bounds: tuple[float, ...] = ()) -> None:
        self._bounds = bounds
        self._by_bound = [0] * (len(bounds) + 1)
        self._counts: dict[int, int] = {}
        self._sum = 0.0
        self._max = 0.0

    def add(self, value: float) -> None:
        """Count a value."""
        interval = math.floor(math.log2(value) * STEPS) if value > SMALLEST else BELOW
        self._counts[interval] = self._counts.get(interval, 0) + 1
        if self._bounds:
            self._by_bound[bisect_left(self._bounds, value)] += 1
        self._sum += value
        if value > self._max:
            self._max = value

    def snapshot(self) -> Distribution:
        """The distribution so far."""
        count = sum(self._counts.values())
        buckets = tuple(zip(self._bounds, accumulate(self._by_bound), strict=False))
        if not count:
            return Distribution(0, 0.0, 0.0, 0.0, 0.0, 0.0, buckets)
        p50, p90, p99 = (self._quantile(q, count) for q in (0.5, 0.9, 0.99))
        return Distribution(count, self._sum / count, p50, p90, p99, self._max, buckets, self._sum)

    def add_all(self, other: "Histogram") -> None:
        """Count all values of another one."""
        for interval, count in other._counts.items():
            self._counts[interval] = self._counts.get(interval, 0) + count
        self._sum += other._sum
        self._max = max(self._max, other._max)

    def since(self, earlier: "Histogram") -> Distribution:
        """The distribution of the values added since the state ``earlier``; its maximum is also accurate to 2.2 %."""
        added = Histogram()
        for interval, count in self._counts.items():
            more = count - earlier._counts.get(interval, 0)
            if more:
                added._counts[interval] = more
        added._sum = self._sum - earlier._sum
        added._max = min(math.exp2((max(added._counts, default=BELOW) + 0.5) / STEPS), self._max)
        return added.snapshot()

    def _quantile(self, q: float, count: int) -> float:
        left = math.ceil(q * count)
        for interval in sorted(self._counts):
            left -= self._counts[interval]
            if left <= 0:
                return min(math.exp2((interval + 0.5) / STEPS), self._max)
        return self._max


class Buckets:
    """Counts of values up to fixed bounds: cheaper than a :class:`Histogram`, and without quantiles.

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
        """As those of a :class:`Distribution`."""
        return tuple(zip(self._bounds, accumulate(self._counts), strict=False))


@dataclass(frozen=True)
class ServerStats:
    """Figures of a server since it was started. ``submitted`` is the sum of all ends and of the open requests.

    Attributes:
        submitted: Requests in all.
        completed: Ended in their value.
        failed: Ended in an error of the function, of a hook or of the device.
        cancelled: Cancelled by their callers.
        expired: Ended in ``DeadlineExceeded``.
        rejected: Refused at the call, or for lack of room.
        dropped: Dropped from the queue in favour of others.
        stopped: Ended by the end of the server.
        queued: Waiting to run now.
        blocked: Waiting for room in the queue now.
        running: Running now.
        queued_cost: Summed cost of those that wait to run.
        queue_time: Seconds from submission until the batch was formed, of those that ran.
        total_time: Seconds from submission to the value.
    """

    submitted: int
    completed: int
    failed: int
    cancelled: int
    expired: int
    rejected: int
    dropped: int
    stopped: int
    queued: int
    blocked: int
    running: int
    queued_cost: float
    queue_time: Distribution
    total_time: Distribution
