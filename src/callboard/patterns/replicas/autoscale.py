"""``Autoscale``: how many replicas a pool is to have, by how long requests wait. No clock, no I/O."""

import math
from dataclasses import dataclass

__all__ = ["Autoscale", "Scaler"]

GROWTH = 2.0
"""Factor by which a pool grows in one step at most."""

CALM = 0.5
"""Part of the target below which requests wait in a pool that may shrink."""


@dataclass(frozen=True)
class Autoscale:
    """The rules by which a pool grows and shrinks.

    Attributes:
        min, max: Replicas.
        target: Seconds that requests may wait in the queue. Where the oldest one waits longer, or the mean of those
            that began in an interval did and the replicas are busy, the pool grows: in proportion, up to twofold in
            one step.
        interval: Seconds between two decisions.
        shrink_after: Seconds for which one replica less must have been enough before one is drained and closed.
        busy: Part of their capacity that the remaining replicas may then be using.
    """

    min: int = 1
    max: int = 8
    target: float = 0.1
    interval: float = 5.0
    shrink_after: float = 60.0
    busy: float = 0.7

    def __post_init__(self) -> None:
        if not 1 <= self.min <= self.max:
            raise ValueError(f"min and max must be 1 <= min <= max, but are {self.min} and {self.max}")
        for name in ("target", "interval", "shrink_after"):
            value = getattr(self, name)
            if not 0 < value < math.inf:
                raise ValueError(f"{name} must be positive seconds, but is {value}")
        if not 0 < self.busy <= 1:
            raise ValueError(f"busy must be above 0 and at most 1, but is {self.busy}")


class Scaler:
    """Decides for one pool.

    Args:
        settings: When.
        now: Seconds.
    """

    def __init__(self, settings: Autoscale, now: float) -> None:
        self.settings = settings
        self._waits = self._waited = 0.0
        self._running = 0
        self._since = self._changed = now
        self._work = 0.0  # requests times seconds, in this interval
        self._calm: float | None = None

    def began(self, waited: float) -> None:
        """A request has begun to run, after ``waited`` seconds in the queue."""
        self._waits += 1
        self._waited += waited

    def running(self, count: int, now: float) -> None:
        """From now on ``count`` requests run."""
        self._work += self._running * (now - self._changed)
        self._running, self._changed = count, now

    def decide(self, replicas: int, capacity: int, oldest: float, now: float) -> int:
        """Return the target number of replicas; starts another interval.

        Args:
            replicas: The number of replicas.
            capacity: Requests that each runs at once.
            oldest: Seconds that the request that waits longest has waited; 0 without any.
            now: Seconds.
        """
        settings = self.settings
        self.running(self._running, now)
        wait = max(oldest, self._waited / self._waits if self._waits else 0.0)
        seconds = now - self._since
        load = self._work / seconds / capacity if seconds > 0 else float(self._running) / capacity
        self._waits = self._waited = self._work = 0.0
        self._since = now
        wanted = replicas
        # Requests that began late, on replicas that are idle by now, need no further ones.
        if wait > settings.target and (oldest > settings.target or load > settings.busy * replicas):
            self._calm = None
            wanted = max(replicas + 1, math.ceil(replicas * min(GROWTH, wait / settings.target)))
        elif oldest <= CALM * settings.target and load <= settings.busy * (replicas - 1):
            if self._calm is None:
                self._calm = now - seconds
            if now - self._calm >= settings.shrink_after:
                self._calm = now
                wanted = replicas - 1
        else:
            self._calm = None
        return min(settings.max, max(settings.min, wanted))
