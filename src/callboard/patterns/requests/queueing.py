"""``QueueServer``: base of the servers whose requests wait in one bounded queue."""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, TypeVar

from callboard.actors.clock import Clock
from callboard.patterns.contract.checks import check_callable
from callboard.patterns.requests.entries import Entry, State
from callboard.patterns.requests.errors import QueueFull
from callboard.patterns.requests.server import RequestServer
from callboard.patterns.requests.waiting import WaitingLine

__all__ = ["QueueServer"]

T = TypeVar("T")
R = TypeVar("R")


class QueueServer(RequestServer[T, R]):
    """Base of the servers with one queue, from which :meth:`_pump` takes what can run.

    Args:
        name: For errors.
        clock: Tells the time; for tests.
        line: The queue.
        cost: The user's function for the cost of an item; None: 1.
    """

    def __init__(
        self, name: str, clock: Clock | None, line: WaitingLine, cost: Callable[[T], float] | None = None
    ) -> None:
        super().__init__(name, clock)
        check_callable(cost=cost)
        self._line = line
        self._cost_of = cost

    @abstractmethod
    def _pump(self) -> None:
        """Start what can run."""

    def _add(self, entry: Entry, now: float, *, may_block: bool) -> list[Entry]:
        """Queue an entry, or raise without a change; returns those that were dropped for it."""
        return self._line.add(entry, may_block=may_block)

    def _retry_after(self) -> float | None:
        """Seconds until there is room again, for ``QueueFull``; None: not known."""
        return None

    def _cost(self, item: T) -> float:
        return 1 if self._cost_of is None else self._cost_of(item)

    def _admit(self, entry: Entry, now: float, *, may_block: bool) -> None:
        try:
            dropped = self._add(entry, now, may_block=may_block)
        except QueueFull as e:
            e.retry_after = self._retry_after()
            raise
        for each in dropped:
            self._fail(each, self._no_room(each), "dropped")
        if entry.state is State.BLOCKED and self._line.options.block_timeout is not None:
            entry.admit_by = now + self._line.options.block_timeout
        self._pump()

    def _no_room(self, entry: Entry) -> Exception:
        error = self._line.full(entry)
        error.retry_after = self._retry_after()
        return error

    def _leave(self, entry: Entry) -> None:
        self._line.remove(entry)
        if self._line.admit_blocked():
            self._pump()

    def _readmit(self, entry: Entry) -> None:
        self._line.restore([entry])
        self._pump()

    def _take(self) -> Entry | None:
        """Take the most urgent request to run it now; None where none is left that is in time."""
        while self._line.count:
            entry = self._line.pop(self._line.buckets()[0])
            self._line.admit_blocked()
            if self._starts(entry):
                return entry
        return None

    def _starts(self, entry: Entry) -> bool:
        """Mark a request that was taken as running; False: its deadline has passed, and it has ended."""
        now = entry.started = self._clock.time()
        entry.state = State.RUNNING
        if entry.deadline is not None and entry.deadline <= now:
            self._fail(entry, self._expired(entry, "queue", now), "expired")
            return False
        self._queue_time.add(now - entry.arrived)
        return True

    def _queue_figures(self) -> dict[str, Any]:
        """The fields of :class:`ServerStats`."""
        return self._figures(self._line.count, self._line.blocked, self._line.cost)

    def _drain(self) -> None:
        self._pump()
