"""``ServerStats``: what a parameter server has done, and how its workers keep up."""

from collections.abc import Hashable

import msgspec

__all__ = ["ServerStats", "WorkerStats"]


class WorkerStats(msgspec.Struct, frozen=True, kw_only=True):
    """A worker.

    Attributes:
        clock: Its pushes.
        behind: How many pushes fewer than the fastest live worker.
        live: It is waited for; False: its lease has ended, or it has left.
        waited: Seconds that it waited for slower ones.
    """

    clock: int
    behind: int
    live: bool
    waited: float


class ServerStats(msgspec.Struct, frozen=True, kw_only=True):
    """What the server has done.

    Attributes:
        version: Updates of the weights.
        pushes: Pushes that were counted, each once.
        repeated: Pushes that were counted before, and got the same answer.
        refused: Pushes with an error.
        pulls: Pulls that gave weights.
        staleness: Applied pushes by their staleness: updates between their weights and the update that has them.
        losses: How often a shard was brought up to date after its device was lost.
        workers: Each by its name.
    """

    version: int
    pushes: int
    repeated: int
    refused: int
    pulls: int
    staleness: dict[int, int]
    losses: int
    workers: dict[Hashable, WorkerStats]

    @property
    def average_staleness(self) -> float:
        """Mean over all applied pushes; 0 without one."""
        return sum(one * count for one, count in self.staleness.items()) / max(1, sum(self.staleness.values()))

    @property
    def stragglers(self) -> list[Hashable]:
        """Live workers that are behind the fastest one, the slowest first."""
        late = {name: one.behind for name, one in self.workers.items() if one.live and one.behind}
        return sorted(late, key=lambda name: -late[name])
