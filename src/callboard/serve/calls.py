"""``CallServer``: requests that each are one call of a function, a bounded number of them at once."""

import asyncio
import functools
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from callboard.actors.clock import Clock
from callboard.patterns.quarantine.guarded import GuardedCalls
from callboard.patterns.requests.calling import Executor, UserCall, deliverable
from callboard.patterns.requests.ending import STOP_TIMEOUT, all_ended
from callboard.patterns.requests.entries import Entry, State
from callboard.patterns.requests.errors import QueueFull
from callboard.patterns.requests.server import RequestServer
from callboard.patterns.requests.stats import Distribution, Histogram, ServerStats
from callboard.patterns.requests.waiting import Limits, WaitingLine

__all__ = ["CallServer", "CallStats"]

AGEING = 1.0
"""Seconds of waiting that count as much as one level of priority."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class CallStats(ServerStats):
    """Figures of a server of single calls.

    Attributes:
        run_time: Seconds per call of the function, of those that ended by themselves.
    """

    run_time: Distribution


class CallServer(RequestServer[tuple[Any, ...], Any]):
    """Calls a function once for each request; an item is the tuple of its arguments.

    If the function is asynchronous, a request that is cancelled, or expires, while it runs cancels the call. A call on
    a thread continues and keeps its place among the running ones.

    Args:
        function: Function, as for :class:`UserCall`.
        concurrency: Calls that run at once.
        max_queue: Requests that wait at most.
        idempotent: A call that fails by a lost context is repeated, and a request that causes losses is refused.
        executor: The executor that calls the function; see :class:`UserCall`.
        name: Name of the server, for errors.
        clock: Tells the time; for tests.

    Raises:
        ValueError: ``concurrency`` or ``max_queue`` is below 1.
        TypeError: ``function`` cannot be called.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        concurrency: int = 1,
        max_queue: int = 1024,
        idempotent: bool = True,
        executor: Executor = "auto",
        name: str = "calls",
        clock: Clock | None = None,
    ) -> None:
        super().__init__(name, clock)
        if concurrency < 1:
            raise ValueError(f"concurrency must be at least 1, but is {concurrency}")
        self._line = WaitingLine(Limits(max_queue), AGEING)
        self._call = UserCall(function, executor, concurrency)
        self._guarded = GuardedCalls(None, name, clock) if idempotent else None
        self._feeders.guard = self._guarded
        self.quarantine = None if self._guarded is None else self._guarded.quarantine
        self._concurrency = concurrency
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._interruptible: set[int] = set()  # those whose function has not returned
        self._queue_time, self._run_time = Histogram(), Histogram()

    def stats(self) -> CallStats:
        """Figures since the start. It reads counters only; on the server's loop."""
        line = self._line
        return CallStats(
            submitted=sum(self._ends.values()) + len(self._open),
            **self._ends,
            queued=line.count,
            blocked=line.blocked,
            running=len(self._open) - line.count,
            queued_cost=line.cost,
            queue_time=self._queue_time.snapshot(),
            total_time=self._total_time.snapshot(),
            run_time=self._run_time.snapshot(),
        )

    def _runs_on(self) -> list[Any]:
        return [self._call]

    def _admit(self, entry: Entry, now: float, *, may_block: bool) -> None:
        if self._guarded is not None:
            self._guarded.read_key(entry)
        try:
            self._line.add(entry, may_block=may_block)
        except QueueFull as e:
            run_time = self._run_time.snapshot()
            e.retry_after = run_time.mean / self._concurrency if run_time.count else None
            raise
        self._pump()

    def _no_room(self, entry: Entry) -> Exception:
        return self._line.full(entry)

    def _leave(self, entry: Entry) -> None:
        self._line.remove(entry)

    def _close_entry(self, entry: Entry, reason: str) -> Any:
        future = super()._close_entry(entry, reason)
        if entry.number in self._interruptible:
            self._tasks[entry.number].cancel()
        return future

    def _pump(self) -> None:
        """Start calls as long as there is room for them."""
        while self._line.count and len(self._tasks) < self._concurrency and self._stopping is None:
            assert self._loop is not None
            entry = self._line.pop(self._line.buckets()[0])
            entry.state = State.RUNNING
            entry.started = self._clock.time()
            if entry.deadline is not None and entry.deadline <= entry.started:
                self._fail(entry, self._expired(entry, "queue", entry.started), "expired")
                continue
            self._queue_time.add(entry.started - entry.arrived)
            task = self._loop.create_task(self._run(entry, entry.item), context=self._context.copy())
            self._tasks[entry.number] = task
            if not self._call.on_thread:
                self._interruptible.add(entry.number)
            task.add_done_callback(functools.partial(self._ended, entry.number))

    async def _run(self, entry: Entry, arguments: tuple[Any, ...]) -> None:
        if entry.state is State.ENDED:  # before the function was called
            return
        try:
            if self._guarded is None:
                value = await self._attempt(entry, arguments)
            else:
                value = await self._guarded.run(entry, functools.partial(self._attempt, entry, arguments))
        except Exception as e:  # of the user's function, which may raise anything
            self._fail(entry, deliverable(e))
        except BaseException:  # the task was cancelled, by stop() or with its loop, or Ctrl-C came
            self._fail(entry, self._stopped(), "stopped")
            raise
        else:
            now = self._clock.time()
            self._run_time.add(now - entry.started)
            self._succeed(entry, value, now)

    async def _attempt(self, entry: Entry, arguments: tuple[Any, ...]) -> Any:
        try:
            answer = await self._call(*arguments)
            if isinstance(answer, BaseException):
                raise answer
        finally:
            self._interruptible.discard(entry.number)
        return await self._feeders.feed(entry, answer)

    def _ended(self, number: int, _: asyncio.Task[None]) -> None:
        del self._tasks[number]
        self._interruptible.discard(number)
        self._pump()

    def _drain(self) -> None:
        """Do nothing: requests do not wait for others here."""

    async def _end_work(self) -> None:
        self._call.close()
        tasks = set(self._tasks.values()) - {asyncio.current_task()}
        if not self._call.on_thread:
            for task in tasks:
                task.cancel()
        if not await all_ended(tasks, self._clock):
            _log.warning("%s: the function still runs %g s after stop()", self.name, STOP_TIMEOUT)
