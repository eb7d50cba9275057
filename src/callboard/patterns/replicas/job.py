"""``Job`` and ``Run``: one request of a pool, and one time that a replica runs it."""

import asyncio
import contextvars
from collections.abc import Hashable
from typing import Any

from callboard.patterns.replicas.member import Member
from callboard.patterns.replicas.replica import Seat
from callboard.patterns.requests.entries import Entry

__all__ = ["Job", "Run"]


class Job:
    """What a pool stores about a request in addition to its entry.

    Attributes:
        entry: The request.
        key: Key for consistent hashing.
        context: Context of the caller, in which the request runs.
        runs: The runs that count: one, or two while it is hedged.
        attempts: Runs so far, without hedges.
        began: When it first ran.
        avoid: The replicas on which it has failed.
    """

    __slots__ = ("attempts", "avoid", "began", "context", "entry", "key", "runs")

    def __init__(self, entry: Entry, key: Hashable, context: contextvars.Context) -> None:
        self.entry = entry
        self.key = key
        self.context = context
        self.runs: list[Run] = []
        self.attempts = 0
        self.began = 0.0
        self.avoid: frozenset[Member] = frozenset()


class Run:
    """A request on a replica.

    Attributes:
        job: The request.
        seat: Seat of the replica.
        member: The same, for the routing.
        task: Calls it.
        started: When it began.
        hedge: It is the second one.
        taken_away: It does not count any more: its replica was restarted.
    """

    __slots__ = ("hedge", "job", "member", "seat", "started", "taken_away", "task")

    def __init__(self, job: Job, seat: Seat, task: "asyncio.Task[Any]", started: float, hedge: bool) -> None:
        self.job = job
        self.seat = seat
        self.member = seat.member
        self.task = task
        self.started = started
        self.hedge = hedge
        self.taken_away = False
