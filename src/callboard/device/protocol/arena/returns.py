"""``Returns``: slots of arenas on their way back, and the callers that wait for one."""

import asyncio
import contextlib
import functools
from collections import deque
from collections.abc import Callable
from typing import Any

__all__ = ["Returns"]

KEPT = 1.0
"""Seconds to wait for an array that code keeps: those of a call of a resident actor come back after its answer."""


class Returns:
    """Counts the slots that have been returned, and wakes those who wait for more.

    Attributes:
        count: Slots that have been returned.
        dropped: Slots of arrays that were dropped, which their finalizers have put here: they take no lock.
    """

    __slots__ = ("_waiters", "count", "dropped")

    def __init__(self) -> None:
        self.count = 0
        self.dropped: deque[Any] = deque()
        self._waiters: list[Callable[[], object]] = []

    def ring(self) -> None:
        """There may be more room than before. Any thread, also in a finalizer."""
        for wake in tuple(self._waiters):
            wake()

    def drop(self, slot: Any, then: Callable[[], None] | None) -> None:
        """The array in a slot has been dropped. Runs in a finalizer, on any thread."""
        self.dropped.append(slot)
        self.ring()
        if then is not None:
            then()

    async def wait(self, hopeful: Callable[[], bool | None]) -> bool:
        """Wait until ``hopeful()`` is True. Any loop.

        Args:
            hopeful: True: there may be room; None: there will be; False: only code that keeps arrays can make some, for
                which this waits :data:`KEPT` seconds.

        Returns:
            What ``hopeful()`` said last.
        """
        came = asyncio.Event()
        wake = functools.partial(_set, asyncio.get_running_loop(), came)
        self._waiters.append(wake)  # first: a slot may be returned on any thread
        try:
            while not (said := hopeful()):
                try:
                    async with asyncio.timeout(None if said is None else KEPT):
                        await came.wait()
                except TimeoutError:
                    return bool(hopeful())
                came.clear()
            return True
        finally:
            self._waiters.remove(wake)


def _set(loop: asyncio.AbstractEventLoop, came: asyncio.Event) -> None:
    with contextlib.suppress(RuntimeError):  # the loop is closed
        loop.call_soon_threadsafe(came.set)
