"""``FairShareScheduler``: tenants share a function by weight, whatever each of them sends."""

import asyncio
from collections.abc import Callable, Hashable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Literal, TypeVar

from callboard.actors.clock import Clock
from callboard.core.errors import Withdrawn
from callboard.patterns.batching.outer import server_behind, warn_of_small_batches
from callboard.patterns.batching.policy import SETTLE
from callboard.patterns.contract.checks import check_seconds, check_whole
from callboard.patterns.contract.hooks import amount
from callboard.patterns.contract.options import RequestOptions
from callboard.patterns.contract.outlet import STREAMED
from callboard.patterns.fairshare.policy import FairPolicy
from callboard.patterns.fairshare.preemption import CURRENT, Run
from callboard.patterns.fairshare.settings import FairOverflow, Tenant, path_of
from callboard.patterns.fairshare.stats import FairShareStats, TenantStats, jain
from callboard.patterns.requests.alarm import Alarm
from callboard.patterns.requests.calling import Executor, UserCall, deliverable
from callboard.patterns.requests.entries import Entry, State
from callboard.patterns.requests.errors import DeadlineExceeded, Stage
from callboard.patterns.requests.passage import PASSAGE
from callboard.patterns.requests.server import RequestServer
from callboard.patterns.requests.workers import WorkerPool

__all__ = ["FairShareScheduler"]

T = TypeVar("T")
R = TypeVar("R")


class FairShareScheduler(RequestServer[T, R]):
    """Runs the requests of many tenants so that each gets its weighted share of the function's capacity.

    ::

        async with cb.FairShareScheduler[str, str](generate, tenants={"free": 1, "paid": 3}) as scheduler:
            text = await scheduler.submit(prompt, tenant="paid", cost=len(prompt))

    While tenants have requests waiting, what they are served is proportional to their weights, in cost, whatever the
    number and the size of their requests. Nothing idles for it: a tenant that is alone gets everything. One that comes
    back after a pause has saved nothing up. See :class:`FairTree` for the algorithm and its bound.

    A request that is cancelled while it runs cancels the call, if the function is asynchronous. A long call lets others
    run between its steps with :meth:`yield_slot`.

    Higher priorities come first, of all tenants. Within a tenant and a priority, the request with the earliest deadline
    comes first, then the one that was submitted first.

    Args:
        dispatcher: Gets one item; its result, awaited if it can be, is the request's value. It may be a plain function,
            an async one, ``functools.partial(model.call, Model.predict)`` of a resident actor, or call device ops.
        tenants: Weights or settings, by name. The name ``("acme", "bob")`` is of the tenant ``"bob"`` in the group
            ``"acme"``: groups share first, then the members of each. ``("acme",)`` or ``"acme"`` names the group.
        default: Settings of each tenant that ``tenants`` does not name, which is forgotten when it is idle. None: the
            requests of such a tenant fail with :class:`UnknownTenant`.
        max_in_flight: Calls of ``dispatcher`` that run at once.
        cost: The cost of an item, such as its tokens; called once, in ``submit``. 1 by default.
        charge: What a request did cost when it has ended, which replaces its cost: ``"seconds"`` for the time that the
            call took, or a function of the item, the value (of a stream, the list of its parts) and the seconds. By
            default its cost stays what it was. A call that failed is charged its seconds, or else its cost.
        max_queue: Requests that wait at most, of all tenants; ``Tenant.max_queue`` bounds each of them.
        overflow: The policy beyond that: ``"reject"``, ``"block"`` or ``"drop_newest_of_largest"``; see
            :class:`FairOverflow`.
        block_timeout: Seconds that ``"block"`` waits at most; None waits for ever.
        idempotent: ``dispatcher`` may run again for the same item: after a lost context its call is repeated in its
            place, and a request that causes losses is found and refused, as by :class:`Quarantine`. False: it fails.
        executor: The executor that calls ``dispatcher``; see :class:`UserCall`.
        name: For errors and logs.
        clock: Tells the time; for tests.

    Attributes:
        behind: The server whose ``submit`` or ``stream`` the dispatcher is, if it is one.

    Raises:
        ValueError: A setting out of range.
        TypeError: ``dispatcher`` cannot be called, or ``tenants`` is not a mapping.

    A request says ``tenant=``; one of a tenant without settings ends in :class:`UnknownTenant` where there is no
    ``default``.
    """

    _takes = frozenset({"tenant"})

    def __init__(
        self,
        dispatcher: Callable[[T], Any],
        *,
        tenants: Mapping[Any, Tenant | float] | None = None,
        default: Tenant | None = Tenant(),  # noqa: B008 -- frozen
        max_in_flight: int = 1,
        cost: Callable[[T], float] | None = None,
        charge: Literal["seconds"] | Callable[[T, R, float], float] | None = None,
        max_queue: int = 4096,
        overflow: FairOverflow | Literal["reject", "block", "drop_newest_of_largest"] = FairOverflow.REJECT,
        block_timeout: float | None = None,
        idempotent: bool = True,
        executor: Executor = "auto",
        name: str = "fair share",
        clock: Clock | None = None,
    ) -> None:
        super().__init__(name, clock)
        check_whole(1, max_in_flight=max_in_flight)
        if tenants is not None and not isinstance(tenants, Mapping):
            raise TypeError(f"tenants is {tenants!r}; give a dict of weights, or of cb.Tenant, by name")
        check_seconds(block_timeout=block_timeout)
        if not (charge is None or charge == "seconds" or callable(charge)):
            raise ValueError(f'charge must be "seconds", a function or None, but is {charge!r}')
        settings = {
            path_of(tenant): given if isinstance(given, Tenant) else Tenant(given)
            for tenant, given in (tenants or {}).items()
        }
        self._policy = FairPolicy(settings, default, max_queue, FairOverflow(overflow))
        self._max_in_flight = max_in_flight
        self._call = UserCall(dispatcher, executor, max_in_flight)
        self.behind = server_behind(dispatcher)
        warn_of_small_batches(self.behind, max_in_flight, name)
        self._cost_of = cost
        self._charge = charge
        self._block_timeout = block_timeout
        self._guard_calls(idempotent=idempotent)
        self._workers = WorkerPool(self, "calls", self._pump)
        self._running: dict[int, Run] = {}  # by the number of a request
        self._aside = 0  # workers whose calls wait in their middle, which takes no slot
        self._turns = self._preempted = 0
        self._timer = Alarm(self._clock, self._pump)
        self._dispatched = self._ended_calls = 0
        self._busy = 0.0

    # -- for users -----------------------------------------------------------------------------------------------------

    def set(self, tenant: Hashable, **changes: Any) -> Tenant:
        """Change settings of a tenant or a group while it runs; gives all of them. On the scheduler's loop.

        What was served before counts as it was charged. A tenant that had no settings has them from now on.

        Args:
            tenant: As for :meth:`submit`.
            changes: Fields of :class:`Tenant`.

        Raises:
            ValueError: Out of range; nothing is changed.
            UnknownTenant: It has no settings that could be changed, and there is no ``default``.
        """
        path = path_of(tenant)
        settings = replace(self._policy.tree.settings_of(path), **changes)
        self._policy.tree.configure(path, settings, self._clock.time())
        self._pump()
        return settings

    async def yield_slot(self, cost: float = 0.0) -> None:
        """Let requests that are due run between two steps of a long call.

        For ``dispatcher``, where it is asynchronous. It returns at once where nothing else is to run. Otherwise the
        call gives up its slot, and waits like a request of its tenant that was submitted when this one was. Its
        deadline, its caller and :meth:`stop` end it there, by cancelling the call.

        Args:
            cost: Of what was done since the last time. It is charged now, in place of as much of the request's cost.

        Raises:
            RuntimeError: It is not this scheduler's function that calls it, or that runs on a thread.
            ValueError: The cost is negative, or no finite number.
        """
        run = CURRENT.get()
        if run is None or run.scheduler is not self:
            raise RuntimeError(f"yield_slot() of {self.name} is for its async function, while that runs a request")
        cost = amount("cost", cost)
        entry, now = run.entry, self._clock.time()
        if entry.state is not State.RUNNING or self._loop is None:
            return  # it has ended, or it waits already, in another task of its call
        run.spent += cost
        if run.spent > entry.cost:
            self._policy.charge(entry, run.spent - entry.cost, now)
        at = self._policy.tree.ready_at(now)
        if at is None or at > now or (self._guarded is not None and not self._guarded.pause(entry)):
            return
        await self._preempt(run, now)

    async def _preempt(self, run: Run, now: float) -> None:
        assert self._loop is not None
        aside = run.aside = self._loop.create_future()
        self._policy.park(run.entry, run.spent, now)
        run.paid, run.spent, run.counted = run.paid + run.spent, 0.0, False
        run.began_waiting, run.turns = now, self._turns
        self._aside += 1
        self._pump()
        try:
            await aside
        finally:
            if run.aside is aside:  # the call was cancelled from within: it is out of the queue, and ends soon
                self._policy.remove(run.entry, self._clock.time())
                self._resumed(run)

    def _resumed(self, run: Run) -> None:
        """A call does not wait in its middle any more."""
        aside, run.aside = run.aside, None
        if aside is None:
            return
        self._aside -= 1
        if self._guarded is not None:
            self._guarded.resume(run.entry)
        now = self._clock.time()
        run.idle += now - run.began_waiting
        self._preempted += self._turns > run.turns
        if not aside.done():
            aside.set_result(None)

    def stats(self) -> FairShareStats:
        """Figures since the start. It reads counters only, a few for each tenant; on the scheduler's loop."""
        tree = self._policy.tree
        leaves = list(tree.leaves())
        return FairShareStats(
            **self._figures(tree.queued, self._policy.blocked, sum(leaf.cost for leaf in leaves)),
            in_flight=tree.running,
            total_dispatched=self._dispatched,
            repeated=0 if self._guarded is None else self._guarded.repeated,
            preempted=self._preempted,
            served=tree.served,
            jain=jain(leaf.served * leaf.per_cost for leaf in leaves),
            tenants={
                leaf.path[0] if len(leaf.path) == 1 else leaf.path: TenantStats(
                    weight=leaf.settings.weight,
                    queued=len(leaf.waiting),
                    blocked=len(leaf.blocked),
                    running=leaf.running,
                    started=leaf.started,
                    served=leaf.served,
                    share=leaf.served / tree.served if tree.served else 0.0,
                    lag=tree.lag(leaf),
                    capped=leaf.capped,
                )
                for leaf in leaves
            },
        )

    # -- requests ------------------------------------------------------------------------------------------------------

    def _key_with(self, item: T, options: RequestOptions) -> Hashable:
        return path_of(options.get("tenant"))

    def _cost(self, item: T) -> float:
        return 1 if self._cost_of is None else self._cost_of(item)

    def _runs_on(self) -> list[Any]:
        return [self._call]

    def _admit(self, entry: Entry, now: float, *, may_block: bool) -> None:
        for dropped in self._policy.add(entry, entry.key, now, may_block=may_block, retry_after=self._retry_after()):
            self._fail(dropped, self._no_room(dropped), "dropped")
        if entry.state is State.BLOCKED and self._block_timeout is not None:
            entry.admit_by = now + self._block_timeout
        self._pump()

    def _retry_after(self) -> float | None:
        """Seconds until a call is expected to end; None where none has ended yet."""
        return self._busy / self._ended_calls / self._max_in_flight if self._ended_calls else None

    def _no_room(self, entry: Entry) -> Exception:
        return self._policy.full(entry, self._retry_after())

    def _close_entry(self, entry: Entry, reason: str) -> Any:
        future = super()._close_entry(entry, reason)
        run = self._running.get(entry.number)
        if run is None or run.worker is asyncio.current_task():
            return future
        if run.aside is not None or (reason in ("cancelled", "expired") and not self._call.on_thread):
            del self._running[entry.number]
            self._resumed(run)
            run.worker.cancel()  # what it waits for is of no use any more
        return future

    def _expired(self, entry: Entry, stage: Stage, now: float) -> DeadlineExceeded:
        return super()._expired(entry, "run" if entry.number in self._running else stage, now)

    def _leave(self, entry: Entry) -> None:
        self._policy.remove(entry, self._clock.time())
        if self._policy.blocked and self._policy.admit_blocked():
            self._pump()

    # -- calls ---------------------------------------------------------------------------------------------------------

    def _pump(self) -> None:
        """Start a worker, or set the timer for when one will be needed."""
        free = self._max_in_flight - len(self._workers.tasks) + self._aside
        # Each worker starts the next one if there is more to run.
        if free <= 0 or self._workers.starting or self._loop is None or self._stopping is not None:
            return
        now = self._clock.time()
        at = self._policy.tree.ready_at(now)
        if at is None:
            return
        if at <= now:
            self._workers.start(self._work())
        else:
            self._timer.set(at)

    async def _work(self) -> None:
        """Run requests as long as there are any."""
        self._workers.starting = 0
        while self._stopping is None:
            if (
                len(self._workers.tasks) - self._aside > self._max_in_flight
            ):  # its request ended while another had its slot
                break
            now = self._clock.time()
            due = self._deadlines.next
            if due is not None and due <= now:
                self._alarmed()  # what has expired is not run
            entry = self._policy.take(now)
            if entry is None:
                break
            if self._policy.blocked:
                self._policy.admit_blocked()
            begun = self._running.get(entry.number)
            if begun is not None:  # its own worker goes on, in the slot of this one
                begun.counted = True
                self._resumed(begun)
                break
            self._turns += 1
            self._pump()  # there may be more, and slots
            await self._run(entry, now)
            if self._policy.tree.queued and not self._policy.waiting(entry):
                # Its caller may submit the next request now that it is answered, and it may be its tenant's turn.
                for _ in range(SETTLE):
                    await asyncio.sleep(0)

    async def _run(self, entry: Entry, now: float) -> None:
        """Call the function for one request, to its end or back into the queue."""
        entry.started = now
        self._queue_time.add(now - entry.arrived)
        self._dispatched += 1
        item, value = entry.item, None
        error: Exception | None = None
        worker = asyncio.current_task()
        assert worker is not None
        run = self._running[entry.number] = Run(self, entry, worker)
        CURRENT.set(run)
        PASSAGE.set(entry.passage)
        self._cause([entry])
        try:
            value = await self._guarded_run(entry, partial(self._attempt, entry, item))
        except Exception as e:  # the user's function may raise anything: its request ends in that
            error = deliverable(e)
        except BaseException as e:  # cancelled, by its caller, by stop() or with its loop, or Ctrl-C
            left = isinstance(e, asyncio.CancelledError) and entry.number not in self._running
            if not (left and worker.uncancel() == 0):
                if run.counted:
                    self._policy.finish(entry, entry.cost, self._clock.time())
                self._fail(entry, self._stopped(), "stopped")  # it has no other end
                raise
            error = Withdrawn(f"{self.name}: the caller has left, or its deadline has passed")  # for the charge
        finally:
            self._running.pop(entry.number, None)
            if run.aside is not None:  # another task of the call waits, and is left alone
                self._policy.remove(entry, self._clock.time())
                self._resumed(run)
            CURRENT.set(None)
        ended = self._clock.time()
        self._busy += ended - now - run.idle
        self._ended_calls += 1
        cost = entry.cost
        try:
            cost = max(0.0, self._actual(entry, run, item, value, error, ended - now - run.idle) - run.paid)
        except Exception as e:  # of a hook: it fails this request alone
            error = deliverable(e)
        if run.counted:
            self._policy.finish(entry, cost, ended)
        if error is None:
            self._succeed(entry, STREAMED if entry.has_parts else value, ended)
        else:
            self._fail(entry, error)

    async def _attempt(self, entry: Entry, item: Any) -> Any:
        return await self._feeders.feed(entry, await self._call(item), keep=callable(self._charge))

    def _actual(self, entry: Entry, run: Run, item: Any, value: Any, error: Exception | None, seconds: float) -> float:
        """The actual cost of a request."""
        if self._charge == "seconds":
            return seconds
        if not callable(self._charge) or error is not None:
            return run.paid + entry.cost
        return amount("charge", self._charge(item, value, seconds))

    # -- life ----------------------------------------------------------------------------------------------------------

    def _drain(self) -> None:
        self._pump()

    async def _end_work(self) -> None:
        self._timer.cancel()
        self._call.close()
        await self._workers.end(interrupt=not self._call.on_thread)
