"""A port: the interface of an event loop to other threads.

Calls that are handed over are coalesced into one wake-up per burst.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from threading import get_ident
from typing import Any

from callboard.actors._runtime.deadlines import Deadlines
from callboard.actors.clock import Clock

__all__ = ["Port"]

_log = logging.getLogger("callboard.actors")


class Port:
    """One event loop with its thread, its ask timeouts and its inbox for calls from elsewhere.

    Must be made on the loop's own thread.
    """

    __slots__ = ("_armed", "_calls", "clock", "deadlines", "loop", "thread")

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Clock) -> None:
        self.loop = loop
        self.thread = get_ident()
        self.clock = clock
        self.deadlines = Deadlines(clock)
        self._calls: deque[tuple[Callable[..., object], tuple[Any, ...]]] = deque()
        self._armed = False

    def is_here(self) -> bool:
        """True if the caller runs on this port's thread."""
        return get_ident() == self.thread

    def run(self, call: Callable[..., object], *args: Any) -> bool:
        """Call at once when the caller is on this thread, else hand over. False when the loop is closed."""
        if get_ident() == self.thread:
            call(*args)
            return True
        return self.post(call, *args)

    def post(self, call: Callable[..., object], *args: Any) -> bool:
        """Hand a call over to the loop's thread. False when the loop is closed: then it is never made."""
        self._calls.append((call, args))
        # Append first, then read the flag; the flush clears the flag first, then reads the deque: no call is
        # overlooked.
        if not self._armed:
            self._armed = True
            try:
                self.loop.call_soon_threadsafe(self._flush)
            except RuntimeError:
                self._calls.clear()
                return False
        return not self.loop.is_closed()

    def _flush(self) -> None:
        self._armed = False
        calls = self._calls
        for _ in range(len(calls)):
            call, args = calls.popleft()
            try:
                call(*args)
            except Exception:  # the calls after it are other people's
                _log.exception("a call handed over to this loop failed")
        if calls and not self._armed:
            self._armed = True
            self.loop.call_soon(self._flush)

    def close(self) -> None:
        """Forget the timers."""
        self.deadlines.close()
