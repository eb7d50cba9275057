"""Hedging: a request that takes unusually long also runs on a second replica. Pure: time is an argument."""

from collections import OrderedDict, deque
from dataclasses import dataclass
from typing import Generic, TypeVar

__all__ = ["Hedger", "Hedging"]

J = TypeVar("J")

KEEP = 512
"""Last durations that the quantile is computed from."""

RENEW = 32
"""Requests after which it is taken anew."""

BURST = 10.0
"""Hedges that may be saved up."""


@dataclass(frozen=True)
class Hedging:
    """The rules for a second run (Dean and Barroso, "The Tail at Scale", 2013); the run that ends first counts.

    Attributes:
        quantile: Quantile of the observed durations after which a request that still runs is hedged.
        budget: Hedges per request at most, over all.
        samples: Requests before the first hedge.
    """

    quantile: float = 0.95
    budget: float = 0.05
    samples: int = 50

    def __post_init__(self) -> None:
        if not 0 < self.quantile < 1:
            raise ValueError(f"quantile must be between 0 and 1, but is {self.quantile}")
        if not 0 < self.budget <= 1:
            raise ValueError(f"budget must be between 0 and 1, but is {self.budget}")
        if self.samples < 1:
            raise ValueError(f"samples must be at least 1, but is {self.samples}")


class Hedger(Generic[J]):
    """Keeps the requests that run, in the order of their starts, and the budget."""

    def __init__(self, settings: Hedging) -> None:
        self._settings = settings
        self._running: OrderedDict[J, float] = OrderedDict()
        self._last: deque[float] = deque(maxlen=KEEP)
        self._ends = 0
        self._tokens = 0.0
        self.delay: float | None = None

    def started(self, job: J, now: float) -> None:
        """A request runs for the first time, or again after a failure."""
        self._running[job] = now
        self._running.move_to_end(job)
        self._tokens = min(BURST, self._tokens + self._settings.budget)

    def ended(self, job: J) -> None:
        """The request has ended, or is not to be hedged any more."""
        self._running.pop(job, None)

    def finished(self, seconds: float) -> None:
        """Record a request that completed ``seconds`` after it first ran."""
        self._last.append(seconds)
        self._ends += 1
        if self._ends >= self._settings.samples and (self.delay is None or self._ends % RENEW == 0):
            ordered = sorted(self._last)
            self.delay = ordered[min(len(ordered) - 1, int(self._settings.quantile * len(ordered)))]

    def oldest(self) -> J | None:
        """The request that runs longest."""
        return next(iter(self._running), None)

    @property
    def due(self) -> float | None:
        """The time at which the oldest may be hedged; None if nothing runs, or too little is known."""
        if self.delay is None or not self._running:
            return None
        return next(iter(self._running.values())) + self.delay

    @property
    def affordable(self) -> bool:
        """True if the budget allows a hedge."""
        return self._tokens >= 1.0

    def spend(self) -> None:
        """A hedge is run."""
        self._tokens -= 1.0
