"""``Feed``: snapshots at an even pace while somebody looks, the newest one for whoever is ready for it."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable

from callboard.actors.clock import Clock, LoopClock
from callboard.telemetry.dashboard.thinning import frame_of
from callboard.telemetry.sampling.snapshot import Snapshot

__all__ = ["Feed"]

INTERVAL = 0.1
"""Seconds between two frames."""

VIEWERS = 32
"""Most pages that look at the same time."""


class Feed:
    """Takes a snapshot ten times a second while there are viewers, and none otherwise.

    A viewer that is slow gets fewer frames, each the newest; nothing is kept for it.

    Args:
        snapshot: Takes one.
        clock: Source of the time; for tests.
    """

    def __init__(self, snapshot: Callable[[], Awaitable[Snapshot]], clock: Clock | None = None) -> None:
        self._snapshot = snapshot
        self._clock = clock or LoopClock()
        self._viewers = 0
        self._frame = b""
        self._number = 0
        self._changed = asyncio.Condition()
        self._task: asyncio.Task[None] | None = None
        self._error: Exception | None = None

    @property
    def full(self) -> bool:
        """There are as many viewers as there may be."""
        return self._viewers >= VIEWERS

    async def frames(self) -> AsyncGenerator[bytes, None]:
        """The frames for one viewer, from the next one on.

        Raises:
            OSError: The application has ended.
            Exception: What else kept a snapshot from being taken.
        """
        self._viewers += 1
        try:
            if self._task is None or self._task.done():
                self._error = None
                self._task = asyncio.ensure_future(self._take())
            seen = self._number
            while True:
                async with self._changed:
                    while self._number == seen and self._error is None:
                        await self._changed.wait()
                    if self._error is not None:
                        raise self._error
                    seen, frame = self._number, self._frame
                yield frame
        finally:
            self._viewers -= 1
            if not self._viewers and self._task is not None:
                self._task.cancel()
                self._task = None

    async def _take(self) -> None:
        try:
            while True:
                begun = self._clock.time()
                frame = frame_of(await self._snapshot())
                async with self._changed:
                    self._frame = frame
                    self._number += 1
                    self._changed.notify_all()
                await self._pause(begun + INTERVAL - self._clock.time())
        except Exception as error:  # whatever it is, the viewers do not wait for ever
            async with self._changed:
                self._error = error
                self._changed.notify_all()

    async def _pause(self, seconds: float) -> None:
        over = asyncio.Event()
        timer = self._clock.call_later(max(0.0, seconds), over.set)
        try:
            await over.wait()
        finally:
            timer.cancel()
