"""``WorkerPool``: the tasks that run the requests of a server; and the waits of a server that is to stop."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable
from typing import TYPE_CHECKING, Any

from callboard.actors.clock import Clock

if TYPE_CHECKING:
    from callboard.patterns.requests.server import RequestServer

__all__ = ["STOP_TIMEOUT", "WorkerPool", "all_ended", "within"]

_log = logging.getLogger(__name__)


STOP_TIMEOUT = 5.0
"""Seconds that ``stop`` waits for functions that run."""


class WorkerPool:
    """Tasks of one server. When one has ended, the server looks for more work.

    Args:
        server: The server, in whose context they run.
        what: What they run, for the names of the tasks and for the log.
        pump: Starts what can run.

    Attributes:
        tasks: Those that have not ended.
        starting: The number of those that have not taken from the queue what they were started for; the server counts
            it down.
    """

    def __init__(self, server: "RequestServer[Any, Any]", what: str, pump: Callable[[], None]) -> None:
        self._server = server
        self._name = f"{server.name}: {what}"
        self._pump = pump
        self.tasks: set[asyncio.Task[None]] = set()
        self.starting = 0

    def start(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        """Run this in a task, in the server's context: what belongs to one request, such as its key, marks no other."""
        loop = self._server._loop
        assert loop is not None
        task = loop.create_task(work, name=self._name, context=self._server._context.copy())
        self.tasks.add(task)
        self.starting += 1
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self.tasks.discard(task)
        if task.cancelled():
            self.starting = 0  # it may not have begun
        elif isinstance(error := task.exception(), Exception):
            _log.error("%s: ended by an internal error; the requests in them have failed", self._name, exc_info=error)
        self._pump()

    async def end(
        self,
        *,
        interrupt: bool,
        still: str = "the function still runs",
        others: "Iterable[asyncio.Future[Any]]" = (),
    ) -> None:
        """The server has stopped: end the tasks, except one that calls this; calls on threads are waited for.

        They are abandoned after :data:`STOP_TIMEOUT` seconds, with a warning.

        Args:
            interrupt: Cancel them now: what they wait for can be interrupted.
            still: What the warning says of them.
            others: Waited for as well, and not cancelled.
        """
        tasks = self.tasks - {asyncio.current_task()}
        if interrupt:
            _cancel(tasks)
        if not await all_ended([*tasks, *others], self._server._clock):
            _log.warning("%s: %s %g s after stop()", self._server.name, still, STOP_TIMEOUT)
            _cancel(tasks)


def _cancel(tasks: "Iterable[asyncio.Task[None]]") -> None:
    for task in tasks:
        task.cancel()


async def within(future: "asyncio.Future[Any]", timeout: float | None, clock: Clock) -> bool:
    """Wait for a future, at most so many seconds; whether it was done in time. It is not cancelled."""
    over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    timer = None if timeout is None else clock.call_later(timeout, _set, over)
    try:
        await asyncio.wait({future, over}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        if timer is not None:
            timer.cancel()
        over.cancel()
    return future.done()


async def all_ended(work: "Iterable[asyncio.Future[Any]]", clock: Clock) -> bool:
    """Wait for tasks and futures, at most :data:`STOP_TIMEOUT` seconds; whether all ended in time. None is cancelled.

    A task that calls this is not waited for.
    """
    waiting = {each for each in work if each is not asyncio.current_task()}
    if not waiting:
        return True
    ended = asyncio.ensure_future(asyncio.wait(waiting))
    try:
        return await within(ended, STOP_TIMEOUT, clock)
    finally:
        ended.cancel()


def _set(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)
