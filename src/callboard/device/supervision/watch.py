"""Observation of a device: its generation as a value, its losses and recoveries as events."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import NamedTuple

from callboard.actors.handles import Handle
from callboard.core.errors import AccelError

__all__ = ["DeviceEvent", "EventFeed", "GenerationWatch", "Lost", "Recovered", "Stopped"]

KEEP = 1024
"""Events kept for a subscriber that does not read; older ones are dropped."""


class Lost(NamedTuple):
    """A context was lost.

    Attributes:
        generation: The generation.
        error: The reason.
        failed: Number of ops that were accepted and not answered. Each has failed with that error, or with that of the
            stop if the device could not continue: :class:`Stopped` then follows at once.
        at: Monotonic seconds.
    """

    generation: int
    error: AccelError
    failed: int
    at: float


class Recovered(NamedTuple):
    """A new context is ready.

    Attributes:
        generation: The new one.
        standby: Kind of host that took over: ``"hot"``, ``"warm"`` or ``"cold"``.
        seconds: Seconds from the report of the loss to recovery.
        at: Monotonic seconds.
    """

    generation: int
    standby: str
    seconds: float
    at: float


class Stopped(NamedTuple):
    """The device takes no more work. The last event."""

    error: AccelError
    at: float


DeviceEvent = Lost | Recovered | Stopped


class GenerationWatch(Handle):
    """The generation of a device: always the latest value, changes awaitable (values in between may be missed).

    Attributes:
        value: The generation whose context was last ready; 0 before the first.
    """

    def __init__(self, value: int = 0) -> None:
        self.value = value
        self._changed: set[asyncio.Future[None]] = set()
        self.closed = False

    def publish(self, value: int) -> None:
        """Set the value and wake the waiters."""
        self.value = value
        self._wake()

    def close(self) -> None:
        """No more changes."""
        self.closed = True
        self._wake()

    async def changed(self, since: int | None = None) -> int:
        """Wait until the value differs from ``since`` (from now, when None); gives it, also when the device stops."""
        since = self.value if since is None else since
        while self.value == since and not self.closed:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._changed.add(future)
            try:
                await future
            finally:
                self._changed.discard(future)
        return self.value

    async def __aiter__(self) -> AsyncIterator[int]:
        seen = 0
        while True:
            if self.value != seen:
                seen = self.value
                yield seen
            elif self.closed:
                return
            else:
                await self.changed(seen)

    def _wake(self) -> None:
        for future in list(self._changed):
            if not future.done():
                future.set_result(None)


class EventFeed:
    """Hands every event to every subscriber, in order.

    Args:
        note: Gets every event first.
    """

    def __init__(self, note: Callable[[DeviceEvent], None]) -> None:
        self._note = note
        self._subscribers: set[_Subscriber] = set()
        self._last: Stopped | None = None

    def publish(self, event: DeviceEvent) -> None:
        self._note(event)
        if isinstance(event, Stopped):
            self._last = event
        for subscriber in self._subscribers:
            subscriber.put(event)

    def subscribe(self) -> "AsyncIterator[DeviceEvent]":
        """Events from now on; ends after :class:`Stopped`."""
        subscriber = _Subscriber()
        self._subscribers.add(subscriber)
        if self._last is not None:
            subscriber.put(self._last)
        return self._read(subscriber)

    async def _read(self, subscriber: "_Subscriber") -> AsyncIterator[DeviceEvent]:
        try:
            while True:
                event = await subscriber.get()
                yield event
                if isinstance(event, Stopped):
                    return
        finally:
            self._subscribers.discard(subscriber)


class _Subscriber:
    def __init__(self) -> None:
        self._events: deque[DeviceEvent] = deque(maxlen=KEEP)
        self._there = asyncio.Event()

    def put(self, event: DeviceEvent) -> None:
        self._events.append(event)
        self._there.set()

    async def get(self) -> DeviceEvent:
        while not self._events:
            self._there.clear()
            await self._there.wait()
        return self._events.popleft()
