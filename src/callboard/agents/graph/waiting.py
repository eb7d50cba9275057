"""Pauses and time-outs by a clock."""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from callboard.actors.clock import Clock

__all__ = ["pause", "within"]

T = TypeVar("T")


async def pause(clock: Clock, seconds: float) -> None:
    """Wait."""
    future = asyncio.get_running_loop().create_future()
    timer = clock.call_later(seconds, lambda: None if future.done() else future.set_result(None))
    try:
        await future
    finally:
        timer.cancel()


async def within(clock: Clock, seconds: float | None, waiting: Awaitable[T]) -> T:
    """Wait for ``waiting``, at most this long.

    Raises:
        TimeoutError: It took longer; it was cancelled.
    """
    if seconds is None:
        return await waiting
    task = asyncio.current_task()
    assert task is not None
    before, expired = task.cancelling(), False

    def expire() -> None:
        nonlocal expired
        expired = True
        task.cancel()

    timer = clock.call_later(seconds, expire)
    try:
        return await waiting
    except asyncio.CancelledError:
        if expired and task.uncancel() <= before:
            raise TimeoutError from None
        raise
    finally:
        timer.cancel()
        if expired and task.cancelling() > before and not task.done():
            task.uncancel()
