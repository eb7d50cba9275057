"""Figures of a pool and of each of its replicas."""

from dataclasses import dataclass

from callboard.patterns.replicas.member import Member, Phase
from callboard.patterns.requests.stats import Distribution, ServerStats

__all__ = ["PoolStats", "ReplicaStats"]


@dataclass(frozen=True)
class ReplicaStats:
    """Figures of one replica.

    Attributes:
        name: Name of the replica.
        phase: Phase of the replica, which decides whether it takes requests.
        ongoing: Requests that it runs now.
        max_ongoing: The maximum number of running requests.
        started: Runs begun on it, also second runs of requests.
        completed: Runs that returned a value.
        failed: Runs that failed because of the replica.
        ejections: The number of times it was taken out of service.
        latency: Seconds of the completed runs.
    """

    name: str
    phase: Phase
    ongoing: int
    max_ongoing: int
    started: int
    completed: int
    failed: int
    ejections: int
    latency: Distribution

    @classmethod
    def of(cls, member: Member) -> "ReplicaStats":
        """The current statistics of a member."""
        return cls(
            name=member.name,
            phase=member.phase,
            ongoing=member.ongoing,
            max_ongoing=member.limit,
            started=member.started,
            completed=member.completed,
            failed=member.failed,
            ejections=member.ejections,
            latency=member.latency.snapshot(),
        )


@dataclass(frozen=True)
class PoolStats(ServerStats):
    """Figures of a pool.

    Attributes:
        repeated: Requests that were put back into the queue after a run had failed, or had not begun.
        hedged: Requests that were run on a second replica, because the first took long.
        scaled: The number of times it was given more or fewer replicas by its ``autoscale``.
        hedges_won: Hedged requests whose second run ended first.
        replicas: Each replica's own, in the order of their places.
    """

    repeated: int
    hedged: int
    scaled: int
    hedges_won: int
    replicas: tuple[ReplicaStats, ...]
