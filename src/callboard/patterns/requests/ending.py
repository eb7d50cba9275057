"""Waits of a server that is to stop, by its clock: for a future, for tasks, for the calls of a user's function."""

import asyncio
import logging
from collections.abc import Iterable
from typing import Any

from callboard.actors.clock import Clock
from callboard.patterns.requests.calling import UserCall

__all__ = ["STOP_TIMEOUT", "all_ended", "end_workers", "within"]

_log = logging.getLogger(__name__)

STOP_TIMEOUT = 5.0
"""Seconds that ``stop`` waits for functions that run."""


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


async def end_workers(name: str, call: UserCall, workers: "Iterable[asyncio.Task[None]]", clock: Clock) -> None:
    """End the tasks that call the user's function; calls that cannot be interrupted are waited for.

    They are abandoned after :data:`STOP_TIMEOUT` seconds, with a warning.

    Args:
        name: Of the server, for the warning.
        call: The function.
        workers: The tasks. One that calls this is left alone.
        clock: Tells the time.
    """
    call.close()
    tasks = {worker for worker in workers if worker is not asyncio.current_task()}
    if not call.on_thread:
        for task in tasks:
            task.cancel()
    if not await all_ended(tasks, clock):
        _log.warning("%s: the function still runs %g s after stop()", name, STOP_TIMEOUT)
        for task in tasks:
            task.cancel()


def _set(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)
