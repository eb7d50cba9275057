"""``RequestServer``: base of all serving blueprints: requests are accepted, end, expire, and servers drain and stop."""

import asyncio
import contextvars
import itertools
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar

from callboard.actors.clock import Clock
from callboard.actors.loops.posting import post
from callboard.core.errors import ContextLost
from callboard.events.concerns import REQUEST_ID, TRACE
from callboard.events.kinds import BATCH, REQUEST
from callboard.events.registry import SERVERS
from callboard.events.ring import EVENTS, Ring
from callboard.events.ring import now as now_ns
from callboard.events.tracing import Cause, caused_by, is_sampled
from callboard.patterns.contract.callers import Callers
from callboard.patterns.contract.hooks import amount, hashable
from callboard.patterns.contract.options import RequestOptions, checked
from callboard.patterns.contract.outlet import Outlet
from callboard.patterns.quarantine.adapter import QuarantineAdapter
from callboard.patterns.quarantine.guard import Quarantine
from callboard.patterns.quarantine.guarded import GuardedCalls
from callboard.patterns.requests.alarm import Alarm
from callboard.patterns.requests.calling import UserCall
from callboard.patterns.requests.deadlines import Deadlines
from callboard.patterns.requests.entries import Entry, RequestFuture, State
from callboard.patterns.requests.errors import DeadlineExceeded, ServerStopped, Stage
from callboard.patterns.requests.feeding import Feeders
from callboard.patterns.requests.inside import check_outside
from callboard.patterns.requests.passage import PASSAGE
from callboard.patterns.requests.stats import SECONDS, Histogram, ServerStats
from callboard.patterns.requests.workers import within

__all__ = ["RequestServer"]

T = TypeVar("T")
R = TypeVar("R")
V = TypeVar("V")


class RequestServer(Callers[T, R]):
    """Base of the serving blueprints.

    Each request ends once: in its value, in an error, or cancelled. A server belongs to the event loop on which it was
    started; ``submit`` may be awaited on any loop, ``ask`` called on any other thread.

    Args:
        name: For errors.
        clock: Tells the time; for tests.

    Attributes:
        quarantine: Refuses requests that lose contexts; None if requests may run once only, or another server does it.
    """

    _takes: frozenset[str] = frozenset()
    """Options of a request that this kind of server takes beside :data:`COMMON`."""

    _key_hook = "key"
    """Name of the hook that gives :meth:`_key`, for errors."""

    def __init__(self, name: str, clock: Clock | None) -> None:
        super().__init__(name, clock)
        self._context = contextvars.Context()  # of start(): work for many requests belongs to none of them
        self._open: dict[int, Entry] = {}
        self._numbers = itertools.count()
        self._deadlines = Deadlines()
        self._alarm = Alarm(self._clock, self._alarmed)
        self._closing = False
        self._adapter: QuarantineAdapter | None = None
        self._guarded: GuardedCalls | None = None
        self.quarantine: Quarantine[Any] | None = None
        self._feeders = Feeders()
        self._all_ended: asyncio.Future[None] | None = None
        self._ends: dict[str, int] = dict.fromkeys(
            ("completed", "failed", "cancelled", "expired", "rejected", "dropped", "stopped"), 0
        )
        self._queue_time, self._total_time = Histogram(SECONDS), Histogram(SECONDS)

    # -- what a blueprint adds -----------------------------------------------------------------------------------------

    @abstractmethod
    def _admit(self, entry: Entry, now: float, *, may_block: bool) -> None:
        """Queue a new entry, or raise without a change."""

    @abstractmethod
    def _leave(self, entry: Entry) -> None:
        """An entry ends before it runs; the blueprint forgets it, in O(1)."""

    @abstractmethod
    def _drain(self) -> None:
        """No more requests will come: waiting requests do not wait for others any more."""

    @abstractmethod
    async def _end_work(self) -> None:
        """All entries have ended; end, or wait for, running calls, at most ``STOP_TIMEOUT`` seconds."""

    @abstractmethod
    def stats(self) -> ServerStats:
        """Figures since the start."""

    def _key(self, item: T) -> Hashable:
        """Entries of equal keys may be batched."""
        return None

    def _key_with(self, item: T, options: RequestOptions) -> Hashable:
        """Like :meth:`_key`, for keys that depend on the options of the request."""
        return self._key(item)

    def _cost(self, item: T) -> float:
        """The cost of an item for which the caller gives none."""
        return 1

    def _figures(self, queued: int, blocked: int, queued_cost: float) -> dict[str, Any]:
        """The fields of :class:`ServerStats`."""
        return {
            "submitted": sum(self._ends.values()) + len(self._open),
            **self._ends,
            "queued": queued,
            "blocked": blocked,
            "running": len(self._open) - queued - blocked,
            "queued_cost": queued_cost,
            "queue_time": self._queue_time.snapshot(),
            "total_time": self._total_time.snapshot(),
        }

    def _runs_on(self) -> list[Any]:
        """The functions, models and servers that it cannot answer without; see ``needs_of``."""
        return []

    def _may_run_on(self) -> list[Any]:
        """Those any of which may be missing, such as replicas."""
        return []

    # -- requests ------------------------------------------------------------------------------------------------------

    def _enter(
        self, item: T, options: RequestOptions, *, may_block: bool, outlet: Outlet | None = None
    ) -> "asyncio.Future[R]":
        now = self._clock.time()
        if self._closing or self._loop is None:
            self._ends["rejected"] += 1
            raise self._refusal()
        try:
            check_outside(self, self.name)
        except RuntimeError:
            self._ends["rejected"] += 1
            raise
        deadline: float | None = None
        cost: float | None = None
        priority = 0
        try:
            if options:
                deadline, priority, cost = checked(options, now, self._takes, self)
            if cost is None:
                cost = self._cost(item)
            if type(cost) is not int or cost < 0:  # nearly all are 1
                cost = amount("cost", cost)
            key = hashable(self._key_hook, self._key_with(item, options))
        except Exception:  # of a hook or an argument: it fails this request alone
            self._ends["failed"] += 1
            raise
        entry = Entry(next(self._numbers), item, now, deadline, priority, cost, key)
        entry.request_id = REQUEST_ID.get()
        if EVENTS.ring is not None:
            entry.trace = entry.parent = TRACE.get()
            if (sampler := EVENTS.sampler) is not None:  # another thread may end it at any time
                entry.trace = sampler.begin(entry.parent)
        if self._takes:
            entry.options = options
        passage = PASSAGE.get()
        if passage is not None:
            entry.passage = passage
            if passage.arrived is None:
                passage.arrived = now
        if deadline is not None and deadline <= now:
            self._ends["expired"] += 1
            raise self._expired(entry, "submit", now)
        future: RequestFuture[R] = RequestFuture(loop=self._loop)
        entry.future, future.entry, future.left = future, entry, self._cancelled
        if outlet is not None:
            entry.outlet = outlet
            outlet.gave_up = partial(self._fail, entry)
        try:
            if self._adapter is None:
                if self._guarded is not None:
                    self._guarded.read_key(entry)
                self._admit(entry, now, may_block=may_block)
            else:
                self._adapter.enter(entry, may_block=may_block)
        except DeadlineExceeded:
            self._ends["expired"] += 1
            raise
        except Exception:  # QueueFull, ItemTooLarge: the request was not accepted
            self._ends["rejected"] += 1
            raise
        self._open[entry.number] = entry
        if entry.deadline is not None or entry.admit_by is not None:
            self._deadlines.add(entry)
            self._set_alarm()
        return future

    def _refusal(self) -> ServerStopped:
        how = "was not started" if self._loop is None else "is draining" if self._stopping is None else "has stopped"
        return ServerStopped(f"{self.name} {how} and takes no requests")

    def _stopped(self) -> ServerStopped:
        return ServerStopped(f"{self.name} stopped before the request was done")

    def _spawn(self, work: Coroutine[Any, Any, V], what: str) -> "asyncio.Task[V]":
        """Run it in a task, in the server's context: what belongs to one request, such as its key, marks no other."""
        assert self._loop is not None
        return self._loop.create_task(work, name=f"{self.name}: {what}", context=self._context.copy())

    _cause = staticmethod(caused_by)
    """What the running task does from now on is for these requests."""

    def _batch_ran(self, size: int, seconds: float, ok: bool, cause: Cause) -> None:
        """Record a batch, or a step."""
        ring = EVENTS.ring
        if ring is not None and (cause[1] or EVENTS.ops):
            ring.append((next(ring.numbers), now_ns(), BATCH, self.name, size, seconds, ok, *cause))

    def _on_loop(self, work: Callable[[], None]) -> None:
        """Call this on the server's loop: now, or soon from another thread; not at all once it has stopped."""
        if (loop := self._loop) is None or self._stopping is not None:
            return
        if asyncio._get_running_loop() is loop:
            work()
        else:
            post(loop, work)

    # -- ends ----------------------------------------------------------------------------------------------------------

    def _succeed(self, entry: Entry, value: Any, now: float) -> None:
        """Settle the entry with its value, which is dropped if the entry has ended."""
        future = self._close_entry(entry, "completed")
        if future is not None:
            self._total_time.add(now - entry.arrived)
            future.set_result(value)

    def _succeed_all(self, entries: list[Entry], values: Sequence[Any], now: float) -> None:
        """As :meth:`_succeed` for entries that have run, none of them a stream, all of them clear."""
        total_time, completed = self._total_time, 0
        ring = EVENTS.ring if EVENTS.ops or EVENTS.sampler is not None else None
        for entry, value in zip(entries, values, strict=False):
            if self._open.pop(entry.number, None) is None:
                continue
            entry.state = State.ENDED
            future, entry.future, entry.item = entry.future, None, None
            if entry.deadline is not None or entry.admit_by is not None:
                self._deadlines.ended(entry)
            passage = entry.passage
            if passage is not None and passage.started is None:
                passage.started = entry.started
            if ring is not None:
                _record(ring, self.name, entry, "completed")
            total_time.add(now - entry.arrived)
            future.set_result(value)
            completed += 1
        self._ends["completed"] += completed
        self._notify_if_drained()

    def _fail(self, entry: Entry, error: Exception, reason: str = "failed") -> None:
        """End the entry in an error; does nothing if it has ended."""
        future = self._close_entry(entry, reason)
        if future is not None:
            future.set_exception(error)

    def _cancelled(self, entry: Entry) -> None:
        """The entry's future was cancelled: by its caller, or because its reader has enough, which completes it."""
        closed = self._close_entry(entry, "cancelled") is not None
        if closed and entry.passage is not None and entry.passage.satisfied:
            self._ends["cancelled"] -= 1
            self._ends["completed"] += 1
            self._total_time.add(self._clock.time() - entry.arrived)

    def _close_entry(self, entry: Entry, reason: str) -> Any:
        """Remove an entry and return its future; None if it had ended before."""
        if self._open.pop(entry.number, None) is None:
            return None
        ran = entry.state is State.RUNNING
        if not ran:
            self._leave(entry)
        elif entry.passage is not None and entry.passage.started is None:
            entry.passage.started = entry.started
        entry.state = State.ENDED
        if ran and reason in ("cancelled", "expired"):
            for each in self._runs_on():
                if isinstance(each, UserCall):
                    each.left(entry)
        if self._adapter is not None:
            self._adapter.closed(entry, ran=ran)
        future, entry.future, entry.item = entry.future, None, None  # no cycle, and no item kept by a stale deadline
        for feeder in self._feeders.tasks.get(entry.number, ()):
            feeder.cancel()  # which closes its iterator
        self._deadlines.ended(entry)
        self._ends[reason] += 1
        ring = EVENTS.ring
        if ring is not None:
            _record(ring, self.name, entry, reason)
        self._notify_if_drained()
        return future

    def _notify_if_drained(self) -> None:
        if self._all_ended is not None and not self._open and not self._all_ended.done():
            self._all_ended.set_result(None)

    def _expired(self, entry: Entry, stage: Stage, now: float) -> DeadlineExceeded:
        text = {"submit": "would not be done by its deadline", "queue": "was not run by its deadline"}
        waited = now - entry.arrived
        return DeadlineExceeded(
            f"{self.name}: the request {text.get(stage, 'ran beyond its deadline')} (waited {waited:.3g} s)",
            stage=stage,
            waited=waited,
        )

    def _set_alarm(self) -> None:
        """One timer, for the earliest deadline."""
        when = self._deadlines.next
        if when is None:
            self._alarm.cancel()
        else:
            self._alarm.set(when)

    def _alarmed(self) -> None:
        now = self._clock.time()
        for entry in self._deadlines.due(now):
            if entry.state is State.BLOCKED and (entry.deadline is None or entry.deadline > now):
                self._fail(entry, self._no_room(entry), "rejected")
            elif not self._goes_on(entry):
                stage: Stage = "run" if entry.state is State.RUNNING or entry.repeated else "queue"
                self._fail(entry, self._expired(entry, stage, now), "expired")
        self._set_alarm()

    def _goes_on(self, entry: Entry) -> bool:
        """Keep an entry whose deadline has passed, without a deadline; False: it is to end."""
        return False

    @abstractmethod
    def _no_room(self, entry: Entry) -> Exception:
        """The error of an entry for which no room became free in time."""

    # -- calls for single requests, guarded by a quarantine -----------------------------------------------------------

    def _guard_calls(self, *, idempotent: bool) -> None:
        """Repeat calls after a loss, and refuse requests that cause losses, if requests may run again."""
        if idempotent:
            self._feeders.guard = self._guarded = GuardedCalls(self.name, self._clock)
            self.quarantine = self._guarded.quarantine

    async def _guarded_run(self, entry: Entry, attempt: Callable[[], Awaitable[V]]) -> V:
        """The value of a request: of one call, or of several after losses."""
        return await attempt() if self._guarded is None else await self._guarded.run(entry, attempt)

    # -- a quarantine in front ---------------------------------------------------------------------------------------

    def _guard_queue(self, quarantine: Quarantine[Any] | None, *, idempotent: bool) -> None:
        """Take requests through this quarantine, or through one of their own if they may run again."""
        if quarantine is not None or idempotent:
            self.quarantine = quarantine or Quarantine(None, clock=self._clock)
            self._feeders.guard = self._adapter = QuarantineAdapter(self.quarantine, self)

    def admit_quarantined(self, entry: Entry, *, again: bool, may_block: bool) -> None:
        """Queue an entry that the quarantine admits; for :class:`QuarantineAdapter`."""
        if again:
            self._readmit(entry)
            return
        self._admit(entry, self._clock.time(), may_block=may_block)
        if entry.admit_by is not None:
            self._deadlines.add(entry)
            self._set_alarm()

    def _readmit(self, entry: Entry) -> None:
        """Queue an entry that has run, at its old place."""
        raise NotImplementedError(type(self))

    async def run_on_spare(self, entry: Entry, spare: Any) -> None:
        """Run an entry alone, elsewhere; for :class:`QuarantineAdapter`."""
        entry.state = State.RUNNING
        entry.started = self._clock.time()
        call = UserCall(spare, "auto", 1)
        self._cause([entry])
        try:
            value = await self._feeders.feed(entry, await self._alone(call, entry.item))
        except ContextLost:
            if entry.state is State.RUNNING:
                entry.state = State.NEW
            raise
        finally:
            call.close()
        self._succeed(entry, value, self._clock.time())

    async def _alone(self, call: UserCall, item: Any) -> Any:
        """The value of one item."""
        return await call(item)

    def fail_quarantined(self, entry: Entry, error: Exception, reason: str) -> None:
        """End an entry in an error; for :class:`QuarantineAdapter`."""
        self._fail(entry, error, reason)

    def quarantined(self) -> tuple[int, int]:
        """Keys of requests that are refused now, and requests that ended in ``Quarantined`` since the start."""
        if self.quarantine is None:
            return 0, 0
        found = self.quarantine.stats()
        return len(found.held), found.quarantined

    # -- life ----------------------------------------------------------------------------------------------------------

    @property
    def started(self) -> bool:
        """True if it was ever started."""
        return self._loop is not None

    async def start(self) -> Self:
        """Accept requests from now on, on this loop; ``async with`` does this.

        Raises:
            RuntimeError: It was started before.
        """
        if self._loop is not None:
            raise RuntimeError(f"{self.name} was started before; make another one")
        self._loop = asyncio.get_running_loop()
        self._context = contextvars.copy_context()
        for each in (REQUEST_ID, TRACE):
            self._context.run(each.set, None)
        SERVERS.add(self)
        return self

    async def drain(self, timeout: float | None = None) -> bool:
        """Accept no more requests, finish the accepted ones, then stop.

        Args:
            timeout: Seconds; requests that have not ended by then end in ``ServerStopped``. None: no limit.

        Returns:
            Whether all of them ended by themselves.
        """
        self._closing = True
        in_time = True
        if self._loop is not None and self._open:
            self._drain()
            if self._all_ended is None:
                self._all_ended = self._loop.create_future()
            in_time = await within(self._all_ended, timeout, self._clock)
        await self.stop()
        return in_time

    async def stop(self) -> None:
        """Stop now: every request that has not ended ends in ``ServerStopped``. Stopping twice is harmless.

        An async function that runs is cancelled; one that runs on a thread cannot be. This waits until they have ended,
        at most :data:`STOP_TIMEOUT <callboard.patterns.requests.workers.STOP_TIMEOUT>` seconds.
        """
        self._closing = True
        if self._loop is None:
            return
        if self._stopping is not None:
            await asyncio.shield(self._stopping)
            return
        self._stopping = self._loop.create_future()
        try:
            for entry in list(self._open.values()):
                self._fail(entry, self._stopped(), "stopped")
            self._alarm.cancel()
            await self._end_work()
            if self._adapter is not None:
                await self._adapter.end()
        finally:
            self._stopping.set_result(None)

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Drain, or stop now where the block was left by an exception."""
        if error is None:
            await self.drain()
        else:
            await self.stop()

    def __repr__(self) -> str:
        how = "new" if self._loop is None else "stopped" if self._stopping else "closing" if self._closing else "open"
        return f"<{type(self).__name__} {self.name!r}, {how}, {len(self._open)} requests>"


def _record(ring: Ring, name: str, entry: Entry, end: str) -> None:
    """Write how a request ended, and when it came and was begun, if that is wanted."""
    if not (EVENTS.ops or (entry.trace and is_sampled(entry.trace) and EVENTS.sampler is not None)):
        return
    number = next(ring.numbers)
    times = entry.arrived, entry.started
    ring.append((number, now_ns(), REQUEST, name, entry.number, *times, end, entry.trace, entry.parent))
