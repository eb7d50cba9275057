"""``Run``: a request whose call has begun, and may wait in its middle for others to run."""

import asyncio
from contextvars import ContextVar
from typing import Any

from callboard.patterns.requests.entries import Entry

__all__ = ["CURRENT", "Run"]

CURRENT: ContextVar["Run | None"] = ContextVar("callboard.fair_share.run", default=None)
"""The run that the call in this context belongs to."""


class Run:
    """One call of a scheduler's function.

    Attributes:
        scheduler: Scheduler that made the call.
        entry: The request.
        worker: Task that runs the call.
        aside: Done when it is the request's turn again; None while it runs.
        counted: True if the policy takes it for one that runs.
        spent: Cost since it was last taken out of the queue.
        paid: Cost that was charged for it before that.
        idle: Seconds that it has waited in its middle.
        began_waiting: When it began to.
        turns: Turn counter of the scheduler when the wait began.
    """

    __slots__ = (
        *("aside", "began_waiting", "counted", "entry", "idle", "paid"),
        *("scheduler", "spent", "turns", "worker"),
    )

    def __init__(self, scheduler: Any, entry: Entry, worker: "asyncio.Task[None]") -> None:
        self.scheduler = scheduler
        self.entry = entry
        self.worker = worker
        self.aside: asyncio.Future[None] | None = None
        self.counted = True
        self.spent = self.paid = self.idle = self.began_waiting = 0.0
        self.turns = 0
