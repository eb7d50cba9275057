"""``Binding``: which request of a pool runs next, and where; and which one runs a second time."""

import logging
from collections.abc import Callable
from functools import partial
from typing import Protocol

from callboard.actors.clock import Clock
from callboard.patterns.replicas.hedging import Hedger
from callboard.patterns.replicas.job import Job
from callboard.patterns.replicas.member import Member
from callboard.patterns.replicas.router import Router
from callboard.patterns.requests.alarm import Alarm
from callboard.patterns.requests.calling import deliverable
from callboard.patterns.requests.entries import Entry, State
from callboard.patterns.requests.waiting import WaitingLine

__all__ = ["Binding", "Bound"]

_log = logging.getLogger(__name__)


class Bound(Protocol):
    """The interface of a pool's runs that a binding uses."""

    name: str

    def begin(self, job: Job, member: Member, now: float, *, hedge: bool) -> None:
        """Run a request on a replica."""

    def expire(self, entry: Entry, now: float) -> None:
        """A request was not begun by its deadline."""

    def refuse(self, entry: Entry, error: Exception) -> None:
        """A request ends in an error before it runs."""


class Binding:
    """Binds requests to replicas, as long as there are both; late, so that none waits behind a slow replica.

    Args:
        line: The requests that wait.
        router: Picks replicas.
        available: Returns True if the actor or device of a replica is ready.
        hedger: Decides about second runs; None: there are no second runs.
        clock: Tells the time.
        runs: Runs what is bound.

    Attributes:
        jobs: The requests that have not ended, by their numbers.
        hedged: Second runs so far.
    """

    def __init__(
        self,
        line: WaitingLine,
        router: Router,
        available: Callable[[Member], bool],
        hedger: Hedger[Job] | None,
        clock: Clock,
        runs: Bound,
    ) -> None:
        self.jobs: dict[int, Job] = {}
        self.hedged = 0
        self._line = line
        self._router = router
        self._available = available
        self._hedger = hedger
        self._clock = clock
        self._runs = runs
        self._timer = Alarm(clock, self.bind)

    def bind(self) -> None:
        """Start the requests that can run now, and check again when that may have changed."""
        now = self._clock.time()
        line = self._line
        elsewhere: list[Entry] = []  # they have failed on those that are free, and wait for others
        while line.count:
            entry = line.peek(line.buckets()[0])
            if entry.deadline is not None and entry.deadline <= now:
                self._runs.expire(entry, now)
                continue
            job = self.jobs[entry.number]
            try:
                member = self._ready(partial(self._router.pick, entry.item, job.key, job.avoid, now))
            except Exception as e:  # the caller's policy may raise anything: the request ends in that
                self._runs.refuse(entry, deliverable(e))
                continue
            if member is None and not (job.avoid and self._router.has_room):
                break
            line.remove(entry)
            if member is None:
                elsewhere.append(entry)
                continue
            line.admit_blocked()
            entry.state = State.RUNNING
            entry.started = now
            if self._hedger is not None and entry.outlet is None:  # the parts of two runs would be mixed
                self._hedger.started(job, now)
            self._runs.begin(job, member, now, hedge=False)
        line.restore(elsewhere)
        if self._hedger is not None and not line.count:
            self._hedge(self._hedger, now)
        self._set_timer(now)

    def _ready(self, find: Callable[[], Member | None]) -> Member | None:
        """The replica that is found, unless its device is being rebuilt: then another."""
        while True:
            member = find()
            if member is None or self._available(member):
                return member

    def _hedge(self, hedger: Hedger[Job], now: float) -> None:
        """Run requests that take long a second time, on replicas that are free."""
        while (job := hedger.oldest()) is not None and hedger.due is not None and hedger.due <= now:
            if len(job.runs) != 1 or not hedger.affordable:
                hedger.ended(job)
                continue
            busy = job.runs[0].member
            try:
                member = self._ready(partial(self._router.other, busy, job.entry.item, job.key, now))
            except Exception:  # of the caller's policy: the first run goes on
                _log.exception("%s: the policy failed for a second run", self._runs.name)
                hedger.ended(job)
                continue
            if member is None:
                return
            hedger.ended(job)
            hedger.spend()
            self.hedged += 1
            self._runs.begin(job, member, now, hedge=True)

    def _set_timer(self, now: float) -> None:
        """Look again when an ejected replica may be probed, or a request hedged."""
        whens = [self._router.next_probe if self._line.count else None, self._hedger.due if self._hedger else None]
        when = min((each for each in whens if each is not None and each > now), default=None)
        if when is not None:
            self._timer.set(when)

    def end(self) -> None:
        """It does not look again by itself."""
        self._timer.cancel()
