"""Ejection of failing replicas, and their probes. Pure: time is an argument."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from callboard.patterns.replicas.member import Member, Phase

__all__ = ["Ejection", "Ejector", "Outcome"]

CLIP = 2.0
"""A request counts for no more than this times the limit, so that a single long one does not eject a replica."""


class Outcome(Enum):
    """The outcome of a run, as far as the replica is concerned."""

    OK = "ok"
    FAULT = "fault"
    """It failed, and not because of the item."""
    UNKNOWN = "unknown"
    """The item was at fault, or the run was abandoned."""


@dataclass(frozen=True)
class Ejection:
    """The rules for ejecting a replica (the outlier detection of Envoy, with a probe as in a circuit breaker).

    Attributes:
        errors: Consecutive failures that eject it; None: failures do not.
        slower: Ratio to the median latency of the replicas at which a replica is ejected; None: latency does not eject
            it.
        margin: Seconds by which it must be slower at least.
        samples: Requests before its latency counts.
        backoff: Seconds until it is probed by one request; doubled each time that the probe fails too.
        max_backoff: Seconds at most.
        most: Share of the replicas that are out of service at once for these reasons; at least one stays.
    """

    errors: int | None = 5
    slower: float | None = 4.0
    margin: float = 0.002
    samples: int = 5
    backoff: float = 1.0
    max_backoff: float = 60.0
    most: float = 0.5

    def __post_init__(self) -> None:
        if self.errors is not None and self.errors < 1:
            raise ValueError(f"errors must be at least 1 or None, but is {self.errors}")
        if self.slower is not None and not self.slower > 1:
            raise ValueError(f"slower must be above 1 or None, but is {self.slower}")
        if not self.margin >= 0:
            raise ValueError(f"margin must be at least 0 seconds, but is {self.margin}")
        if self.samples < 1:
            raise ValueError(f"samples must be at least 1, but is {self.samples}")
        if not 0 < self.backoff <= self.max_backoff:
            raise ValueError(f"0 < backoff <= max_backoff must hold, but they are {self.backoff}, {self.max_backoff}")
        if not 0 <= self.most <= 1:
            raise ValueError(f"most must be between 0 and 1, but is {self.most}")


class Ejector:
    """Watches the ends of runs.

    Args:
        settings: None: a replica is never ejected.
    """

    def __init__(self, settings: Ejection | None) -> None:
        self._settings = settings
        self._typical: float | None = None
        self._fresh = 0  # ends for which the median of the latencies is still used
        self.next_probe: float | None = None
        self.probing = False  # a member may be

    def ended(self, member: Member, outcome: Outcome, seconds: float, members: Sequence[Member], now: float) -> None:
        """Record a run that ended after ``seconds``; an abandoned one would have taken longer."""
        settings = self._settings
        limit = float("inf") if settings is None else self._limit(settings, members)
        if outcome is Outcome.OK or (outcome is Outcome.UNKNOWN and member.mean is not None and seconds > member.mean):
            member.observe(seconds, now, CLIP * limit)
        if outcome is Outcome.FAULT:
            member.faults += 1
        elif outcome is Outcome.OK:
            member.faults = 0
        if settings is None or member.phase not in (Phase.READY, Phase.PROBING):
            return
        if member.phase is Phase.PROBING:
            if seconds > limit or outcome is Outcome.FAULT:
                self._eject(settings, member, members, now)
            elif outcome is Outcome.OK:
                member.mean, member.samples = seconds, 1
                member.enter(Phase.READY)
                self._look(members)
            return
        slow = member.samples >= settings.samples and member.mean is not None and member.mean > limit
        if slow or (settings.errors is not None and member.faults >= settings.errors):
            if self._may_eject(settings, members):
                self._eject(settings, member, members, now)
        elif outcome is Outcome.OK and member.samples >= settings.samples:
            member.level = 0

    def tick(self, members: Sequence[Member], now: float) -> None:
        """Let those be probed whose back-off is over."""
        if self.next_probe is None or now < self.next_probe:
            return
        for member in members:
            if member.phase is Phase.EJECTED and member.until <= now:
                member.enter(Phase.PROBING)
        self._look(members)

    def _limit(self, settings: Ejection, members: Sequence[Member]) -> float:
        """Seconds above which a replica is too slow. The median is taken anew once per as many ends as members."""
        if settings.slower is None:
            return float("inf")
        self._fresh -= 1
        if self._fresh < 0:
            self._fresh = len(members)
            known = [
                each.mean
                for each in members
                if each.phase is Phase.READY and each.mean is not None and each.samples >= settings.samples
            ]
            self._typical = statistics.median_low(known) if known else self._typical
        if self._typical is None:
            return float("inf")
        return max(settings.slower * self._typical, self._typical + settings.margin)

    def _may_eject(self, settings: Ejection, members: Sequence[Member]) -> bool:
        able = [each for each in members if each.phase in (Phase.READY, Phase.PROBING, Phase.EJECTED)]
        out = sum(each.phase is not Phase.READY for each in able)
        return out + 1 <= min(int(settings.most * len(able)), len(able) - 1)

    def _eject(self, settings: Ejection, member: Member, members: Sequence[Member], now: float) -> None:
        pause = min(settings.max_backoff, settings.backoff * 2.0 ** min(member.level, 60))
        member.level += 1
        member.ejections += 1
        member.until = now + pause
        member.faults = 0
        member.enter(Phase.EJECTED)
        self._look(members)

    def _look(self, members: Sequence[Member]) -> None:
        self.probing = any(each.phase is Phase.PROBING for each in members)
        self.next_probe = min((each.until for each in members if each.phase is Phase.EJECTED), default=None)
