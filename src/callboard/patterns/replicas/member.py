"""``Member``: the routing state of one replica: its load, its latency, and whether it takes requests."""

import math
from enum import StrEnum

from callboard.patterns.requests.stats import Histogram

__all__ = ["TAU", "Member", "Phase"]

TAU = 10.0
"""Seconds in which an observed latency loses all but 1/e of its weight."""

_exp = math.exp

WEIGHT = 1 / 8
"""Weight of the last request in the mean latency that is compared to find outliers."""


class Phase(StrEnum):
    """The phase of a replica, which decides if it takes requests. Members equal their texts."""

    READY = "ready"
    PROBING = "probing"
    """It was ejected, and gets one request at a time until one has succeeded."""
    EJECTED = "ejected"
    """It failed, or was too slow, and gets no requests for a while."""
    AWAY = "away"
    """The replica's device, or its resident actor, is being rebuilt."""
    DRAINING = "draining"
    """The replica finishes its running requests and gets no more."""
    STOPPED = "stopped"
    """It will take no more requests: its actor or device has stopped, or making it has failed."""


_READY = Phase.READY  # a global is found faster than a member of an enum


class Member:
    """One place in the pool. Changed by the router only.

    Attributes:
        name: Name of the replica.
        number: Position in the pool.
        limit: Requests that it may run at once.
        ongoing: Requests that it runs.
        room: The number of requests it could take now.
        phase: Phase of the replica, which decides whether it takes requests.
        mean: Smoothed seconds per request; None before the first.
        samples: Requests in that mean.
        faults: Consecutive failures.
        level: Ejections since it last was healthy for a while.
        until: When an ejected one is probed.
        picked: The number of the last choice that fell on it.
        started, completed, failed, ejections: Counters.
        latency: Seconds of the completed runs.
    """

    __slots__ = (
        *("_peak", "_seen", "completed", "ejections", "failed", "faults", "latency", "level", "limit", "mean", "name"),
        *("number", "ongoing", "phase", "picked", "room", "samples", "started", "until"),
    )

    def __init__(self, name: str, number: int, limit: int) -> None:
        self.name = name
        self.number = number
        self.limit = limit
        self.ongoing = 0
        self.started = self.completed = self.failed = self.ejections = 0
        self.latency = Histogram()
        self.picked = -1
        self.forget()

    def forget(self) -> None:
        """Begin anew: another replica has taken this place."""
        self._peak = 0.0
        self._seen = -math.inf
        self.mean: float | None = None
        self.samples = self.faults = self.level = 0
        self.until = 0.0
        self.enter(Phase.READY)

    def enter(self, phase: Phase) -> None:
        """Change the phase."""
        self.phase = phase
        self.count(0)

    def count(self, change: int) -> None:
        """More or fewer requests run on it."""
        self.ongoing += change
        if self.phase is _READY:
            self.room = self.limit - self.ongoing
        else:
            self.room = int(self.phase is Phase.PROBING and not self.ongoing)

    def observe(self, seconds: float, now: float, clip: float = math.inf) -> None:
        """Record the duration of a request; for the mean it counts at most ``clip`` seconds."""
        if seconds >= self._peak:
            self._peak = seconds
        else:
            weight = _exp((self._seen - now) / TAU)
            self._peak = self._peak * weight + seconds * (1 - weight)
        self._seen = now
        seconds = min(seconds, clip)
        self.mean = seconds if self.mean is None else self.mean + (seconds - self.mean) * WEIGHT
        self.samples += 1

    def cost(self, now: float) -> float:
        """Expected seconds of another request: peak-EWMA latency times the requests that it would then run.

        The latency rises at once to a larger value and falls slowly. It also falls while there are no new measurements,
        so that a slow replica is tried again. A replica without measurements has the lowest cost while it is idle, else
        the highest. Source: Twitter Finagle's ``PeakEwma`` balancer.
        """
        if self.mean is None:
            return self.ongoing * 1e9
        return self._peak * _exp((self._seen - now) / TAU) * (self.ongoing + 1)
