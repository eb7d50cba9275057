"""``Runs``: requests on replicas: a run begins, ends in its outcome, and the request ends or runs again."""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from callboard.actors.errors import printable
from callboard.core.errors import ContextLost, Withdrawn
from callboard.patterns.contract.hooks import truth
from callboard.patterns.replicas.ejection import Outcome
from callboard.patterns.replicas.errors import NoReplica
from callboard.patterns.replicas.hedging import Hedger
from callboard.patterns.replicas.job import Job, Run
from callboard.patterns.replicas.member import Member
from callboard.patterns.replicas.replica import NotSent, Seat
from callboard.patterns.replicas.router import Router
from callboard.patterns.replicas.scaling import Scaling
from callboard.patterns.replicas.seats import Seats
from callboard.patterns.requests.calling import deliverable
from callboard.patterns.requests.entries import Entry, State
from callboard.patterns.requests.waiting import WaitingLine
from callboard.patterns.requests.workers import STOP_TIMEOUT, all_ended

if TYPE_CHECKING:
    from callboard.patterns.replicas.server import ModelReplicaPool

__all__ = ["Runs"]

_log = logging.getLogger(__name__)


class Runs:
    """Runs the requests of a pool that are bound to replicas.

    Args:
        pool: Ends requests.
        line: The requests that wait, for those that run again.
        router: Is told how runs end.
        seats: The replicas' callables.
        hedger: Decides about second runs; None: there are none.
        scaling: Is told how long requests waited; None: the number of replicas does not follow that.
        idempotent, attempts, fault: See :class:`ModelReplicaPool <callboard.ModelReplicaPool>`.

    Attributes:
        repeated: Requests that were queued again, so far.
        hedges_won: Second runs that gave the value, so far.
    """

    def __init__(
        self,
        pool: "ModelReplicaPool[Any, Any]",
        line: WaitingLine,
        router: Router,
        seats: Seats,
        hedger: Hedger[Job] | None,
        scaling: Scaling | None,
        *,
        idempotent: bool,
        attempts: int,
        fault: Callable[[Exception], bool],
    ) -> None:
        self._pool = pool
        self.name = pool.name
        self._clock = pool._clock
        self._line = line
        self._router = router
        self._seats = seats
        self._hedger = hedger
        self._scaling = scaling
        self._idempotent, self._attempts, self._fault = idempotent, attempts, fault
        self._runs: set[Run] = set()
        self.repeated = self.hedges_won = 0

    def expire(self, entry: Entry, now: float) -> None:
        """A request was not begun by its deadline; for :class:`Binding`."""
        self._pool._fail(entry, self._pool._expired(entry, "queue", now), "expired")

    def refuse(self, entry: Entry, error: Exception) -> None:
        """A request ends before it runs; for :class:`Binding`."""
        self._pool._fail(entry, error)

    def begin(self, job: Job, member: Member, now: float, *, hedge: bool) -> None:
        """Run a request on a replica; for :class:`Binding`."""
        loop = self._pool._loop
        assert loop is not None
        if not hedge:
            if not job.attempts:
                job.began = now
                self._pool._queue_time.add(now - job.entry.arrived)
                if self._scaling is not None:
                    self._scaling.began(now - job.entry.arrived)
            job.attempts += 1
        self._router.begin(member)
        seat = self._seats[member]
        task = loop.create_task(self._answer(seat, job.entry), name=f"{self.name}: {member.name}", context=job.context)
        run = Run(job, seat, task, now, hedge)
        job.runs.append(run)
        self._runs.add(run)
        if self._scaling is not None:
            self._scaling.running(len(self._runs), now)
        task.add_done_callback(partial(self._ended, run))

    async def _answer(self, seat: Seat, entry: Entry) -> Any:
        self._pool._cause([entry])
        if self._pool._adapter is not None:
            self._pool._adapter.keyring.mark(entry)
        return await self._pool._feeders.feed(entry, await seat.call(entry.item))

    def _ended(self, run: Run, task: "asyncio.Task[Any]") -> None:
        """A run has ended, however that was."""
        self._runs.discard(run)
        job, member, now = run.job, run.member, self._clock.time()
        if self._scaling is not None:
            self._scaling.running(len(self._runs), now)
        seconds = now - run.started
        if run.taken_away:
            self._router.end(member, Outcome.UNKNOWN, 0.0, now)
        elif task.cancelled():
            job.runs.remove(run)
            self._router.end(member, Outcome.UNKNOWN, seconds, now)
            if job.entry.state is State.RUNNING and not job.runs:  # with its loop, not by this pool
                self._pool._fail(job.entry, self._pool._stopped(), "stopped")
        else:
            job.runs.remove(run)
            error = task.exception()
            if error is None:
                self._router.end(member, Outcome.OK, seconds, now)
                self._done(job, run, task.result(), now)
            elif isinstance(error, Exception):
                self._failed(run, error, seconds, now)
            else:  # Ctrl-C: the loop ends
                self._router.end(member, Outcome.UNKNOWN, seconds, now)
                self._pool._fail(job.entry, self._pool._stopped(), "stopped")
        if self._pool._adapter is not None and job.entry.state is State.ENDED:
            self._pool._adapter.ran(job.entry)
        self._seats.ended(member)
        self._pool._bind()

    def _done(self, job: Job, run: Run, value: Any, now: float) -> None:
        if job.entry.state is not State.RUNNING:
            return
        if self._hedger is not None:
            self._hedger.finished(now - job.began)
        self.hedges_won += run.hedge
        self._pool._succeed(job.entry, value, now)

    def _failed(self, run: Run, error: Exception, seconds: float, now: float) -> None:
        member, began = run.member, True
        if isinstance(error, NotSent):
            error, began = error.error, False
        elif isinstance(error, Withdrawn):
            began = False
        lost = isinstance(error, ContextLost) and run.seat.watched  # it is known when that is over
        fault = began and self._is_fault(error)
        outcome = Outcome.FAULT if fault and not lost else Outcome.UNKNOWN
        self._router.end(member, outcome, seconds if began and not lost else 0.0, now)
        self._seats.check(member)
        if self._pool._adapter is not None and began and not run.job.runs and isinstance(error, ContextLost):
            if self._hedger is not None:
                self._hedger.ended(run.job)
            if self._pool._adapter.ran(run.job.entry, error):
                self.repeated += 1
                return
        self._again_or_fail(run.job, member, error, may_repeat=not began or (fault and self._idempotent), fault=fault)

    def _is_fault(self, error: Exception) -> bool:
        try:
            return truth("fault", self._fault(error))
        except Exception as e:  # of the caller's hook: the request ends in its own error
            _log.exception("%s: `fault` failed for %s", self.name, printable(error, repr))
            error.add_note(
                f"{self.name}: `fault`, which was to say whether it is the replica's, failed: {printable(e, repr)}"
            )
            return False

    def _again_or_fail(self, job: Job, member: Member, error: Exception, *, may_repeat: bool, fault: bool) -> None:
        """A run of a request gives no value: leave it to the other run, queue it again, or end it."""
        entry = job.entry
        if entry.state is not State.RUNNING or (job.runs and (fault or may_repeat)):
            return
        may_repeat = may_repeat and not entry.has_parts
        if may_repeat and not job.runs and job.attempts < self._attempts and self._pool._stopping is None:
            job.avoid |= {member}
            if self._hedger is not None:
                self._hedger.ended(job)
            self.repeated += 1
            self._line.restore([entry])
        else:
            self._pool._fail(entry, deliverable(error))

    def take_away(self, member: Member) -> None:
        """Disown the runs on a replica: their requests run again or fail."""
        for run in [run for run in self._runs if run.member is member and not run.taken_away]:
            run.taken_away = True
            if run in run.job.runs:
                run.job.runs.remove(run)
            error = NoReplica(f"{self.name}: replica {member.name} was restarted before the request was done")
            self._again_or_fail(run.job, member, error, may_repeat=self._idempotent, fault=True)
            if not run.seat.call.on_thread:
                run.task.cancel()
        self._pool._pump()

    async def end(self) -> None:
        """The pool has stopped: cancel runs, and wait for those that cannot be cancelled."""
        tasks = {run.task for run in self._runs}
        for run in self._runs:
            if not run.seat.call.on_thread:
                run.task.cancel()
        if not await all_ended(tasks, self._clock):
            _log.warning("%s: %d requests still run %g s after stop()", self.name, len(self._runs), STOP_TIMEOUT)
