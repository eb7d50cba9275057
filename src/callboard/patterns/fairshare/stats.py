"""Figures of a fair scheduler, for each tenant and for all."""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass

from callboard.patterns.requests.stats import ServerStats

__all__ = ["FairShareStats", "TenantStats", "jain"]


@dataclass(frozen=True)
class TenantStats:
    """Figures of one tenant since its record was created.

    The record of a tenant without settings of its own is dropped when idle.

    Attributes:
        weight: Current weight.
        queued: Requests that wait to run; those that have given way are in the sum of all tenants only.
        blocked: Requests that wait for room.
        running: Requests that run.
        started: The number of times one of them got a slot: when it was started, and after it had given way.
        served: Summed cost of its requests, corrected by their actual costs.
        share: ``served`` relative to that of all tenants.
        lag: The cost by which it is behind its group's clock, if it has requests waiting; negative: ahead.
        capped: True if it uses as much as it may.
    """

    weight: float
    queued: int
    blocked: int
    running: int
    started: int
    served: float
    share: float
    lag: float
    capped: bool


@dataclass(frozen=True)
class FairShareStats(ServerStats):
    """Figures of a fair scheduler.

    Attributes:
        in_flight: Calls of the function that have not ended, also of requests whose callers have left.
        total_dispatched: Calls that were started.
        repeated: Calls that were repeated after a lost context.
        preempted: Number of times that a call gave way, and another request ran meanwhile.
        served: Summed cost of all requests that were started.
        jain: Jain's index of ``served / weight`` over the recorded tenants: 1 if all had the same, 1/n if one of n had
            everything. Tenants with few requests lower it, which is not unfair.
        tenants: Recorded tenants by name.
    """

    in_flight: int
    total_dispatched: int
    repeated: int
    preempted: int
    served: float
    jain: float
    tenants: dict[Hashable, TenantStats]


def jain(values: Iterable[float]) -> float:
    """Jain's fairness index, ``(sum x)^2 / (n * sum x^2)`` (Jain, Chiu and Hawe, 1984); 1 if all are 0."""
    found = list(values)
    squares = sum(value * value for value in found)
    return sum(found) ** 2 / (len(found) * squares) if squares else 1.0
