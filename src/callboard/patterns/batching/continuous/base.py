"""``StepServer``: base of the servers whose sequences run in common steps, in one task."""

import asyncio
from abc import abstractmethod
from collections.abc import Callable
from typing import Any, TypeVar

from callboard.actors.clock import Clock
from callboard.patterns.quarantine.steps import StepGuard
from callboard.patterns.requests.entries import Entry
from callboard.patterns.requests.queueing import QueueServer
from callboard.patterns.requests.waiting import WaitingLine
from callboard.patterns.requests.workers import WorkerPool

__all__ = ["StepServer"]

T = TypeVar("T")
R = TypeVar("R")


class StepServer(QueueServer[T, R]):
    """Base of the servers whose sequences run in common steps, in one task, as long as there are any.

    Args:
        name, clock, line, cost: See :class:`QueueServer`.
        what: What the task runs, for its name.
        idempotent: Sequences of a step that failed may be begun again.
    """

    def __init__(
        self,
        name: str,
        clock: Clock | None,
        line: WaitingLine,
        what: str,
        *,
        idempotent: bool,
        cost: Callable[[T], float] | None = None,
    ) -> None:
        super().__init__(name, clock, line, cost)
        self._guard = StepGuard(name, clock, idempotent=idempotent)
        self.quarantine = self._guard.quarantine
        self._worker = WorkerPool(self, what, self._pump)
        self._changed = asyncio.Event()  # a reader has made room, or a request has come or ended

    @abstractmethod
    async def _work(self) -> None:
        """Run steps as long as there is a sequence."""

    def _admit(self, entry: Entry, now: float, *, may_block: bool) -> None:
        self._guard.enter(entry)
        if entry.outlet is not None:
            entry.outlet.room_made = self._changed.set
        super()._admit(entry, now, may_block=may_block)

    def _pump(self) -> None:
        self._changed.set()
        if self._loop is not None and self._stopping is None and self._line.count and not self._worker.tasks:
            # It takes requests when it runs: what is submitted in this iteration of the loop is in the first step.
            self._worker.start(self._work())

    def _close_entry(self, entry: Entry, reason: str) -> Any:
        self._changed.set()
        self._guard.forget(entry, completed=reason == "completed")
        return super()._close_entry(entry, reason)
