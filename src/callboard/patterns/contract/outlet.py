"""``Outlet``: the parts of one answer on their way to its reader, a bounded number of them."""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

from callboard.actors.clock import Cancellable, Clock
from callboard.patterns.requests.errors import SlowReader

__all__ = ["STREAMED", "Outlet", "Reading"]

STREAMED = object()
"""Value of a request whose answer was sent to its outlet."""


class Outlet:
    """A buffer between the producer and the reader of parts; used on the server's loop only.

    Args:
        size: Parts that may wait for the reader.
        patience: Seconds that they may wait while the buffer is full; None: as long as the request lives.
        clock: Tells the time.

    Attributes:
        room_made: Called when a full buffer has room again; for servers.
        gave_up: Called when the reader has taken nothing for ``patience`` seconds.
        count: Parts so far.
    """

    def __init__(self, size: int, patience: float | None, clock: Clock) -> None:
        if size < 1:
            raise ValueError(f"buffer must be at least 1 part, but is {size}")
        if patience is not None and not patience > 0:
            raise ValueError(f"patience must be positive seconds or None, but is {patience}")
        self._size = size
        self._patience = patience
        self._clock = clock
        self._parts: deque[Any] = deque()
        self._waiting: asyncio.Future[None] | None = None  # the reader
        self._timer: Cancellable | None = None
        self._closed = False
        self.room_made: Callable[[], None] = _nothing
        self.gave_up: Callable[[Exception], None] = _nothing
        self.count = 0

    @property
    def full(self) -> bool:
        """True if no further part should be produced now."""
        return len(self._parts) >= self._size and not self._closed

    def put(self, part: Any) -> None:
        """Add a part. Parts added while it is full are kept; parts added after it is closed are dropped."""
        if self._closed:
            return
        self._parts.append(part)
        self.count += 1
        self._wake()
        if self.full and self._patience is not None and self._timer is None:
            self._timer = self._clock.call_later(self._patience, self._late)

    def close(self, *_: object) -> None:
        """Mark the end of the parts. Parts already added can still be read."""
        self._closed = True
        self._end_timer()
        self._wake()
        self.room_made()

    async def get(self) -> Any:
        """The next part; :data:`STREAMED` after the last one."""
        while not self._parts:
            if self._closed:
                return STREAMED
            self._waiting = asyncio.get_running_loop().create_future()
            try:
                await self._waiting
            finally:
                self._waiting = None
        was_full = self.full
        part = self._parts.popleft()
        if was_full and not self.full:
            self._end_timer()
            self.room_made()
        return part

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    def _late(self) -> None:
        self._timer = None
        text = (
            f"{len(self._parts)} parts have waited {self._patience:g} s for their reader; read faster, or buffer more"
        )
        self.gave_up(SlowReader(text))

    def _end_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class Reading:
    """A request whose answer is read part by part.

    Args:
        outlet: Outlet that receives the parts.
        future: The end of the request.
    """

    def __init__(self, outlet: Outlet, future: "asyncio.Future[Any]") -> None:
        self._outlet = outlet
        self._future = future
        self._whole = False
        future.add_done_callback(outlet.close)

    async def next(self) -> Any:
        """The next part; :data:`STREAMED` at the end. A whole value is the only part.

        Raises:
            Exception: The exception that the request ended with.
        """
        part = await self._outlet.get()
        if part is STREAMED and not self._whole:
            self._whole = True
            return await self._future
        return part

    def leave(self) -> None:
        """The reader has stopped: the request is cancelled, unless it has ended."""
        if not self._future.cancel() and not self._future.cancelled():
            self._future.exception()  # it was read, or is not wanted


def _nothing(*_: object) -> None:
    pass
