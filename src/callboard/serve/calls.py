"""``CallServer``: requests that each are one call of a function, a bounded number of them at once."""

import asyncio
import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from callboard.actors.clock import Clock
from callboard.patterns.contract.checks import check_whole
from callboard.patterns.requests.calling import Executor, UserCall, deliverable
from callboard.patterns.requests.entries import Entry, State
from callboard.patterns.requests.queueing import QueueServer
from callboard.patterns.requests.stats import Distribution, Histogram, ServerStats
from callboard.patterns.requests.waiting import QueueOptions, WaitingLine
from callboard.patterns.requests.workers import WorkerPool

__all__ = ["CallServer", "CallStats"]


@dataclass(frozen=True)
class CallStats(ServerStats):
    """Figures of a server of single calls.

    Attributes:
        run_time: Seconds per call of the function, of those that ended by themselves.
    """

    run_time: Distribution


class CallServer(QueueServer[tuple[Any, ...], Any]):
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
        super().__init__(name, clock, WaitingLine(max_queue, QueueOptions()))
        check_whole(1, concurrency=concurrency)
        self._call = UserCall(function, executor, concurrency)
        self._guard_calls(idempotent=idempotent)
        self._concurrency = concurrency
        self._workers = WorkerPool(self, "calls", self._pump)
        self._interruptible: dict[int, asyncio.Task[None]] = {}  # those whose function has not returned
        self._run_time = Histogram()

    def stats(self) -> CallStats:
        """Figures since the start. It reads counters only; on the server's loop."""
        return CallStats(**self._queue_figures(), run_time=self._run_time.snapshot())

    def _runs_on(self) -> list[Any]:
        return [self._call]

    def _retry_after(self) -> float | None:
        run_time = self._run_time.snapshot()
        return run_time.mean / self._concurrency if run_time.count else None

    def _close_entry(self, entry: Entry, reason: str) -> Any:
        future = super()._close_entry(entry, reason)
        if (call := self._interruptible.get(entry.number)) is not None:
            call.cancel()
        return future

    def _pump(self) -> None:
        """Start calls as long as there is room for them."""
        while self._stopping is None and len(self._workers.tasks) < self._concurrency:
            if (entry := self._take()) is None:
                break
            task = self._workers.start(self._run(entry, entry.item))
            if not self._call.on_thread:
                self._interruptible[entry.number] = task
                task.add_done_callback(functools.partial(self._done, entry.number))

    async def _run(self, entry: Entry, arguments: tuple[Any, ...]) -> None:
        if entry.state is State.ENDED:  # before the function was called
            return
        try:
            value = await self._guarded_run(entry, functools.partial(self._attempt, entry, arguments))
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
        self._cause([entry])
        try:
            answer = await self._call(*arguments)
            if isinstance(answer, BaseException):
                raise answer
        finally:
            self._done(entry.number)
        return await self._feeders.feed(entry, answer)

    def _done(self, number: int, _: "asyncio.Task[None] | None" = None) -> None:
        self._interruptible.pop(number, None)

    async def _end_work(self) -> None:
        self._call.close()
        await self._workers.end(interrupt=not self._call.on_thread)
