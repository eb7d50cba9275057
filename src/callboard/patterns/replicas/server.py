"""``ModelReplicaPool``: one queue in front of several copies of a model."""

import asyncio
import contextvars
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, Literal, Self, TypeVar

from callboard.actors.clock import Clock
from callboard.patterns.contract.checks import check_whole
from callboard.patterns.quarantine.guard import Quarantine
from callboard.patterns.replicas.autoscale import Autoscale
from callboard.patterns.replicas.binding import Binding
from callboard.patterns.replicas.ejection import Ejection
from callboard.patterns.replicas.errors import NoReplica
from callboard.patterns.replicas.hedging import Hedger, Hedging
from callboard.patterns.replicas.job import Job
from callboard.patterns.replicas.picking import ReplicaLoad, ReplicaPolicy, picker_of
from callboard.patterns.replicas.replica import fault_of_replica
from callboard.patterns.replicas.router import Router
from callboard.patterns.replicas.runs import Runs
from callboard.patterns.replicas.scaling import Scaling
from callboard.patterns.replicas.seats import Given, Make, Seats
from callboard.patterns.replicas.stats import PoolStats, ReplicaStats
from callboard.patterns.requests.calling import Executor
from callboard.patterns.requests.entries import Entry, State
from callboard.patterns.requests.queueing import QueueServer
from callboard.patterns.requests.waiting import QueueOptions, WaitingLine
from callboard.patterns.requests.workers import within

__all__ = ["ModelReplicaPool"]

T = TypeVar("T")
R = TypeVar("R")


class ModelReplicaPool(QueueServer[T, R]):
    """Runs each request on one of several replicas of a model.

    ::

        models = [gpu.actor_of(cb.Props(Model)) for gpu in gpus]
        async with cb.ModelReplicaPool([functools.partial(m.call, Model.predict) for m in models]) as pool:
            y = await pool.submit(x)

    There is one queue. A request is bound to a replica when that has room for it, never earlier, so that none waits
    behind a slow replica while another is free. A replica gets no requests while its device or resident actor is being
    rebuilt, after it has failed or was much slower than the others (:class:`Ejection`), and while it is drained.

    Args:
        replicas: What runs a request: each a :class:`Replica`, or its ``call`` alone; or a number, with ``make``.
        make: ``make(name)`` returns a replica, or is awaited for it; for a number of replicas, :meth:`scale` and
            :meth:`restart`.
        policy: Which replica gets a request: see :class:`ReplicaPolicy`; or ``policy(item, loads)``, which returns one
            of the :class:`ReplicaLoad` s that it is given. The request that probes an ejected replica is not asked for.
        choices: Replicas that ``"p2c"`` compares for a request; None: all up to eight.
        key: The key of an item, for ``"consistent_hash"``: a session, a prefix. Its ``repr`` counts.
        bound: For ``"consistent_hash"``: load of a replica relative to the mean at most.
        max_ongoing: Requests that a replica runs at once. With two, the next one can be on its way meanwhile.
        ejection: When a replica is taken out of service and tried again; None: never.
        hedging: When a request that takes long is run on a second replica too. When one run has given the value, the
            other is cancelled; on a thread it goes on, and keeps its place until it has ended. Needs ``idempotent``.
            None: never.
        autoscale: How many replicas there are, by how long requests wait; it needs ``make``. None: only :meth:`scale`
            changes that.
        idempotent: A request may run more than once. One whose run fails because of its replica is then queued again,
            in its old place, and preferably runs on another; ``quarantine`` watches losses. False: it fails.
        attempts: Runs of a request at most, without hedges. Also a call that a resident actor has refused, so that
            nothing ran, counts as one; such a request is queued again whether ``idempotent`` or not.
        fault: Returns True if an error is the replica's and not the item's; otherwise, all but ``ValueError``,
            ``TypeError``, ``LookupError``, ``ArithmeticError`` and ``NotImplementedError`` are.
        quarantine: The :class:`Quarantine` to use instead of one with its default settings: it finds the request that
            kills its contexts, and refuses it. It gets None as its target, and as its spare a function like a
            replica's. A request whose context was lost runs again as it says.
        cost: The cost of an item, called once, in ``submit``.
        max_queue: Requests that wait at most.
        queue: Further bounds of the queue, the policy beyond them, and its order; see :class:`QueueOptions`.
        executor: The executor that calls plain functions; see :class:`UserCall`.
        name: For errors and logs.
        clock: Tells the time; for tests.

    Raises:
        ValueError: A setting out of range, or settings that contradict each other; two replicas of one name.
        TypeError: ``replicas`` is neither a list nor a number; a replica or a policy that cannot be called.
    """

    def __init__(
        self,
        replicas: Sequence[Given] | int,
        *,
        make: Make | None = None,
        policy: ReplicaPolicy
        | Literal["round_robin", "least_outstanding", "p2c", "consistent_hash"]
        | Callable[[T, list[ReplicaLoad]], ReplicaLoad | str] = ReplicaPolicy.P2C,
        choices: int | None = None,
        key: Callable[[T], Hashable] | None = None,
        bound: float = 1.25,
        max_ongoing: int = 1,
        ejection: Ejection | None = Ejection(),  # noqa: B008 -- frozen
        hedging: Hedging | None = None,
        autoscale: Autoscale | None = None,
        idempotent: bool = True,
        attempts: int = 2,
        fault: Callable[[Exception], bool] = fault_of_replica,
        quarantine: Quarantine[Any] | None = None,
        cost: Callable[[T], float] | None = None,
        max_queue: int = 1024,
        queue: QueueOptions = QueueOptions(),  # noqa: B008 -- frozen
        executor: Executor = "auto",
        name: str = "replicas",
        clock: Clock | None = None,
    ) -> None:
        super().__init__(name, clock, WaitingLine(max_queue, queue), cost)
        check_whole(1, max_ongoing=max_ongoing, attempts=attempts)
        if hedging is not None and not idempotent:
            raise ValueError("hedging runs requests twice: it needs idempotent=True")
        if not isinstance(replicas, int | Iterable):
            raise TypeError(f"replicas is {replicas!r}; give a list of replicas, or a number and `make=`")
        if isinstance(replicas, int) and (replicas < 1 or make is None):
            raise ValueError(f"{replicas} replicas: at least one is needed, and `make=`, which makes them")
        if autoscale is not None and make is None:
            raise ValueError("autoscale needs `make=`, which makes replicas")
        if not replicas:
            raise ValueError("replicas is empty: give at least one, or a number and `make=`")
        if policy == ReplicaPolicy.CONSISTENT_HASH and key is None:
            raise ValueError('policy="consistent_hash" needs `key=`, which gives the key of an item')
        self._guard_queue(quarantine, idempotent=idempotent)
        self._router = Router(picker_of(policy, choices, bound), ejection)
        self._seats = Seats(name, self._router, make, max_ongoing, executor, self._pump)
        self._hedger: Hedger[Job] | None = None if hedging is None else Hedger(hedging)
        self._key_of = key
        self._first = replicas if isinstance(replicas, int) else 0
        self._woken = False
        self._scaling: Scaling | None = None
        if autoscale is not None:
            self._scaling = Scaling(name, autoscale, max_ongoing, self._clock, self._seats.scale, self._seen)
        self._runs = Runs(
            *(self, self._line, self._router, self._seats, self._hedger, self._scaling),
            idempotent=idempotent,
            attempts=attempts,
            fault=fault,
        )
        self._binding = Binding(self._line, self._router, self._seats.check, self._hedger, self._clock, self._runs)
        for given in [] if isinstance(replicas, int) else replicas:
            self._seats.add(given)

    # -- for users -----------------------------------------------------------------------------------------------------

    async def start(self) -> Self:
        """Take requests from now on, on this loop, after the replicas have been made; ``async with`` does this.

        Raises:
            RuntimeError: It was started before.
            Exception: Raised by ``make``; the pool has stopped then.
        """
        await super().start()
        if self._first:
            try:
                await self._seats.scale(self._first)
            except BaseException:  # a cancellation, too
                await self.stop()
                raise
        if self._scaling is not None:
            self._scaling.start()
        return self

    async def scale(self, n: int) -> None:
        """Have ``n`` replicas from now on: more are made, the last ones drained and closed. Returns when that is done.

        Raises:
            ValueError: ``n`` is below 1; more are wanted, and there is no ``make``.
            Exception: Raised by ``make``; those made before stay.
        """
        if n < 1:
            raise ValueError(f"a pool needs at least one replica, not {n}; to end it, use drain() or stop()")
        await self._seats.scale(n)

    async def drain_replica(self, name: str, timeout: float | None = None) -> bool:
        """Give a replica no more requests and wait until it runs none; the others go on. :meth:`resume` undoes it.

        Args:
            name: Of the replica.
            timeout: Seconds to wait at most; None: as long as it takes.

        Returns:
            Whether it runs none.

        Raises:
            KeyError: No replica has this name.
        """
        return await within(self._seats.drained(self._seats.find(name)), timeout, self._clock)

    def resume(self, name: str) -> None:
        """Give a replica that was drained requests again. On the pool's loop.

        Raises:
            KeyError: No replica has this name.
        """
        self._seats.resume(self._seats.find(name))

    async def restart(self, name: str, timeout: float | None = None) -> None:
        """Drain a replica, close it, and put another that ``make`` gives in its place, under the same name.

        Args:
            name: Of the replica.
            timeout: Seconds for which its requests may still run. Those that run then are queued again where that is
                allowed, else they fail with :class:`NoReplica`. None: as long as they take.

        Raises:
            KeyError: No replica has this name.
            ValueError: There is no ``make``.
            Exception: Raised by ``make``; the replica has stopped then, and may be restarted again.
        """
        seat = self._seats.find(name)

        async def idle(future: "asyncio.Future[None]") -> None:
            if not await within(future, timeout, self._clock):
                self._runs.take_away(seat.member)

        await self._seats.restart(seat, idle)

    def stats(self) -> PoolStats:
        """Figures since the start. It reads counters only; on the pool's loop."""
        return PoolStats(
            **self._queue_figures(),
            repeated=self._runs.repeated,
            scaled=0 if self._scaling is None else self._scaling.scaled,
            hedged=self._binding.hedged,
            hedges_won=self._runs.hedges_won,
            replicas=tuple(ReplicaStats.of(each) for each in self._router.members),
        )

    def _seen(self) -> tuple[int, float | None]:
        """The number of replicas, and the submission time of the longest-waiting request."""
        return len(self._router.members), min((entry.arrived for entry in self._line.entries()), default=None)

    # -- requests ------------------------------------------------------------------------------------------------------

    def _key(self, item: T) -> Hashable:
        return None if self._key_of is None else self._key_of(item)

    def _add(self, entry: Entry, now: float, *, may_block: bool) -> list[Entry]:
        if not self._router.usable:
            raise self._no_replica()
        job = Job(entry, entry.key, contextvars.copy_context())
        entry.key = None  # the queue is not divided by it
        dropped = super()._add(entry, now, may_block=may_block)
        self._binding.jobs[entry.number] = job
        return dropped

    def _retry_after(self) -> float | None:
        return self._router.pace

    def _no_replica(self) -> NoReplica:
        count = len(self._router.members)
        error = NoReplica(f"{self.name}: all {count} replicas have stopped; restart() or scale() it")
        error.retryable = False  # they come back by these calls alone
        return error

    def _close_entry(self, entry: Entry, reason: str) -> Any:
        future = super()._close_entry(entry, reason)
        if future is not None:
            job = self._binding.jobs.pop(entry.number, None)
            if job is None:  # it waited for its turn in quarantine
                return future
            if self._hedger is not None:
                self._hedger.ended(job)
            for run in job.runs:  # whose value would be dropped
                # What a suspect has in flight counts until it ends.
                if not run.seat.call.on_thread and (self._adapter is None or entry.clear):
                    run.task.cancel()
        return future

    # -- routing -------------------------------------------------------------------------------------------------------

    def _pump(self) -> None:
        """Look at the queue in the next iteration of the loop."""
        if not self._woken and self._loop is not None and self._stopping is None:
            self._woken = True
            self._loop.call_soon(self._bind)

    def _bind(self) -> None:
        """Bind requests to replicas as long as there are both."""
        self._woken = False
        if self._stopping is not None:
            return
        self._binding.bind()
        if not self._router.usable:
            for waiting in [entry for entry in self._open.values() if entry.state is not State.RUNNING]:
                self._fail(waiting, self._no_replica())

    # -- life ----------------------------------------------------------------------------------------------------------

    def _may_run_on(self) -> list[Any]:
        return self._seats.runs_on()

    async def _end_work(self) -> None:
        self._binding.end()
        if self._scaling is not None:
            self._scaling.end()
        await self._runs.end()
        await self._seats.close()
