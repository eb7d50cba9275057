"""What a batching server learns while it runs: how long a batch takes, and how fast requests arrive."""

__all__ = ["ArrivalGap", "BatchTimes"]

FORGET = 0.98
"""Weight of a batch relative to the one after it: about the last 50 count."""

SMOOTHING = 1 / 16


class BatchTimes:
    """Least-squares fit of ``seconds = per_item * n + fixed`` over the last batches, recent ones weighing more."""

    def __init__(self) -> None:
        self._w = self._n = self._t = self._nn = self._nt = 0.0

    def add(self, n: int, seconds: float) -> None:
        """A batch of ``n`` items took so long."""
        self._w = self._w * FORGET + 1
        self._n = self._n * FORGET + n
        self._t = self._t * FORGET + seconds
        self._nn = self._nn * FORGET + n * n
        self._nt = self._nt * FORGET + n * seconds

    @property
    def known(self) -> bool:
        """Whether a batch has been measured."""
        return self._w > 0

    @property
    def fit(self) -> tuple[float, float]:
        """``(per_item, fixed)``, both at least 0.

        While all batches had the same size, the two cannot be told apart: ``fixed`` is 0 then.
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

    def seconds(self, n: int) -> float:
        """How long a batch of ``n`` is expected to take; 0 while nothing is known."""
        per_item, fixed = self.fit
        return per_item * n + fixed


class ArrivalGap:
    """Mean time between two arrivals, smoothed, and when the last one was."""

    def __init__(self) -> None:
        self._gap: float | None = None
        self.last: float | None = None

    def arrived(self, now: float) -> None:
        """A request has arrived."""
        if self.last is not None:
            gap = now - self.last
            self._gap = gap if self._gap is None else self._gap + (gap - self._gap) * SMOOTHING
        self.last = now

    @property
    def seconds(self) -> float | None:
        """None before the second arrival."""
        return self._gap
