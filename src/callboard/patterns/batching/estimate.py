"""Estimates of a batching server at run time: the duration of a batch, and the arrival rate of requests."""

__all__ = ["ArrivalGap", "BatchTimes"]

FORGET = 0.98
"""Weight of a batch relative to the one after it: about the last 50 count. Both figures have the same memory, so that a
slow batch does not raise the one and leave the other as it is."""

FEW = 8
OUTLIER, SMALL = 3.0, 1e-3
"""Bound of the duration that a batch counts with: a multiple of the expected one, or seconds if that is more."""

PAUSE = 1.0
"""Seconds between two batches that count at most: a longer pause carries no more information."""


class BatchTimes:
    """Least-squares fit of ``seconds = per_item * n + fixed`` over the last batches, recent ones weighing more."""

    def __init__(self) -> None:
        self._w = self._n = self._t = self._nn = self._nt = 0.0

    def add(self, n: float, seconds: float) -> None:
        """Add the duration of a batch of ``n`` items."""
        if self._w > FEW:
            seconds = min(seconds, max(OUTLIER * self.seconds(n), SMALL))
        self._w = self._w * FORGET + 1
        self._n = self._n * FORGET + n
        self._t = self._t * FORGET + seconds
        self._nn = self._nn * FORGET + n * n
        self._nt = self._nt * FORGET + n * seconds

    @property
    def known(self) -> bool:
        """True if a batch has been measured."""
        return self._w > 0

    @property
    def fit(self) -> tuple[float, float]:
        """``(per_item, fixed)``, both at least 0.

        While all batches had the same size, the two cannot be separated: ``fixed`` is then 0.
        """
        if not self._w:
            return 0.0, 0.0
        spread = self._w * self._nn - self._n * self._n
        if spread <= 1e-6 * self._w * self._nn:
            return self._t / self._n, 0.0
        per_item = (self._w * self._nt - self._n * self._t) / spread
        fixed = (self._t - per_item * self._n) / self._w
        if per_item < 0:
            return 0.0, self._t / self._w
        if fixed < 0:
            return self._t / self._n, 0.0
        return per_item, fixed

    def seconds(self, n: float) -> float:
        """The expected duration of a batch of ``n``; 0 without a measurement."""
        per_item, fixed = self.fit
        return per_item * n + fixed


class ArrivalGap:
    """Mean time between two arrivals, over the last batches.

    It is measured from batch to batch, not from one arrival to the next: clients that submit after each answer arrive
    in bursts, whose gaps do not predict the next arrival.
    """

    def __init__(self) -> None:
        self.last: float | None = None
        self._arrivals = 0  # since the last batch was taken
        self._taken: float | None = None
        self._seconds = self._count = 0.0

    def arrived(self, now: float) -> None:
        """A request has arrived."""
        self.last = now
        self._arrivals += 1

    def taken(self, now: float) -> None:
        """A batch was taken out of the queue."""
        if self._taken is not None:
            self._seconds = self._seconds * FORGET + min(now - self._taken, PAUSE)
            self._count = self._count * FORGET + self._arrivals
        self._taken = now
        self._arrivals = 0

    @property
    def seconds(self) -> float | None:
        """None while there is no batch, or no arrival, to measure."""
        return self._seconds / self._count if self._count else None
