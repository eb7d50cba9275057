"""``Clocks``: which worker of a parameter server may push, and which one has been lost. Pure: told the time."""

from collections.abc import Hashable

from callboard.train.parameterserver.consistency import Rule

__all__ = ["Clocks"]


class Clocks:
    """The clocks of the workers, and their leases.

    Two clocks of live workers never differ by more than ``rule.slack``. A worker that has not been heard of for
    ``lease`` seconds is lost: nobody waits for it. When it is heard of again, it goes on at the slowest worker's clock,
    or at its own if that is higher.

    Args:
        rule: Gives the slack.
        lease: Seconds.

    Attributes:
        clock: Pushes of each worker, also of lost ones.
    """

    def __init__(self, rule: Rule, lease: float) -> None:
        self.clock: dict[Hashable, int] = {}
        self._slack = rule.slack
        self._lease = lease
        self._heard: dict[Hashable, float] = {}
        self._busy: dict[Hashable, int] = {}

    @property
    def live(self) -> list[Hashable]:
        """The workers that are waited for."""
        return list(self._heard)

    @property
    def slowest(self) -> int:
        """Lowest clock of a live worker; without one, the highest that there was."""
        return min((self.clock[worker] for worker in self._heard), default=max(self.clock.values(), default=0))

    @property
    def level(self) -> bool:
        """All live workers have the same clock."""
        return len({self.clock[worker] for worker in self._heard}) <= 1

    def hear(self, worker: Hashable, now: float) -> None:
        """The worker lives."""
        if worker not in self._heard:
            self.clock[worker] = max(self.clock.get(worker, 0), self.slowest)
        self._heard[worker] = now

    def enter(self, worker: Hashable, now: float) -> None:
        """A call of the worker begins; it lives until that ends."""
        self.hear(worker, now)
        self._busy[worker] = self._busy.get(worker, 0) + 1

    def leave(self, worker: Hashable, now: float) -> None:
        """A call of the worker ends."""
        self._busy[worker] -= 1
        if not self._busy[worker]:
            del self._busy[worker]
        if worker in self._heard:
            self._heard[worker] = now

    def drop(self, worker: Hashable) -> None:
        """The worker is not waited for any more."""
        self._heard.pop(worker, None)

    def expire(self, now: float) -> list[Hashable]:
        """Drop the workers whose lease has ended; give their names."""
        lost = [worker for worker, at in self._heard.items() if worker not in self._busy and at + self._lease <= now]
        for worker in lost:
            self.drop(worker)
        return lost

    def next_expiry(self, now: float) -> float | None:
        """Seconds until a lease may end; None if none can."""
        ends = [at + self._lease - now for worker, at in self._heard.items() if worker not in self._busy]
        return max(0.0, min(ends)) if ends else None

    def has_room(self, worker: Hashable) -> bool:
        """One more push of the worker keeps the clocks within the slack."""
        return self._slack is None or self.clock[worker] + 1 - self.slowest <= self._slack

    def count(self, worker: Hashable) -> None:
        """The worker has pushed once more."""
        self.clock[worker] += 1
