"""Statistics of a world."""

from typing import NamedTuple

__all__ = ["WorldHealth", "WorldStats"]


class WorldStats(NamedTuple):
    """Figures of a world (:meth:`.World.stats`).

    Attributes:
        size: Number of ranks.
        formation: The number of times it has formed; 0 before the first time.
        losses: Formations that ended in a loss.
        calls: Collectives and groups that were accepted.
        completed, failed: Number of these calls that completed, and that failed.
        in_flight: Number of these calls that have not ended.
        sent_bytes: Bytes of the arrays that ranks have sent.
        formed_in: Seconds that the last formation took, from the loss, or the first call, to ready.
    """

    size: int
    formation: int
    losses: int
    calls: int
    completed: int
    failed: int
    in_flight: int
    sent_bytes: int
    formed_in: float


class WorldHealth(NamedTuple):
    """The state of a world (:meth:`.World.health`).

    Attributes:
        state: ``"forming"``, ``"ready"``, ``"closed"`` or ``"stopped"``.
        ok: True if it takes collectives now.
        formation: The number of times it has formed.
        devices: State of each rank's device, ``"ready"``, ``"starting"`` …
        error: The reason why it formed the last time, or stopped; None if there was no reason.
    """

    state: str
    ok: bool
    formation: int
    devices: tuple[str, ...]
    error: str | None
