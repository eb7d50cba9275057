"""Time as a dependency: the runtime asks a clock, so that tests can move the time by hand."""

import asyncio
import heapq
import itertools
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol

__all__ = ["Cancellable", "Clock", "LoopClock", "ManualClock"]


class Cancellable(Protocol):
    """A scheduled call, as returned by ``call_later``."""

    def cancel(self) -> object:
        """Forget the call; harmless when it has happened already."""
        ...


class Clock(ABC):
    """Tells the time and calls back later, on the loop that is running when ``call_later`` is called."""

    @abstractmethod
    def time(self) -> float:
        """Seconds, monotonic, from any origin."""

    @abstractmethod
    def call_later(self, delay: float, callback: Callable[..., object], *args: Any) -> Cancellable:
        """Call ``callback(*args)`` on the running loop after ``delay`` seconds."""


class LoopClock(Clock):
    """The real clock."""

    time = staticmethod(time.monotonic)  # pyright: ignore[reportAssignmentType] -- no call of Python code in between

    def call_later(self, delay: float, callback: Callable[..., object], *args: Any) -> Cancellable:
        return asyncio.get_running_loop().call_later(delay, callback, *args)


class _ManualTimer:
    __slots__ = ("args", "callback", "loop")

    def __init__(self, loop: asyncio.AbstractEventLoop, callback: Callable[..., object], args: tuple[Any, ...]) -> None:
        self.loop = loop
        self.callback: Callable[..., object] | None = callback
        self.args = args

    def cancel(self) -> None:
        self.callback = None

    def fire(self) -> None:
        if self.callback is not None:
            self.callback(*self.args)


class ManualClock(Clock):
    """A clock for tests that stands still until :meth:`advance` moves it."""

    def __init__(self, start: float = 0.0) -> None:
        self._now = start
        self._heap: list[tuple[float, int, _ManualTimer]] = []
        self._order = itertools.count()
        self._lock = threading.Lock()

    def time(self) -> float:
        return self._now

    def call_later(self, delay: float, callback: Callable[..., object], *args: Any) -> Cancellable:
        timer = _ManualTimer(asyncio.get_running_loop(), callback, args)
        with self._lock:
            heapq.heappush(self._heap, (self._now + max(0.0, delay), next(self._order), timer))
        return timer

    @property
    def pending(self) -> int:
        """Number of calls that are still scheduled."""
        with self._lock:
            return sum(timer.callback is not None for _, _, timer in self._heap)

    def advance(self, seconds: float) -> None:
        """Move the time and make the calls that become due, each at its own moment, in order.

        Calls that belong to this thread's loop are made before this returns; those of other loops are handed over to
        them.
        """
        if seconds < 0:
            raise ValueError(f"time cannot go back: {seconds}")
        until = self._now + seconds
        here = asyncio.get_running_loop()
        while True:
            with self._lock:
                if not self._heap or self._heap[0][0] > until:
                    break
                when, _, timer = heapq.heappop(self._heap)
                self._now = max(self._now, when)
            if timer.loop is here:
                timer.fire()
            else:
                with suppress(RuntimeError):  # its loop is closed: nothing waits for it any more
                    timer.loop.call_soon_threadsafe(timer.fire)
        self._now = until
