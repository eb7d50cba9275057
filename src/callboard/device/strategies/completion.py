"""``CompletionStrategy``: how the admitting thread waits while it has nothing to admit.

All strategies query events on the admitting thread, so each of them reports the stream's error. They differ in how that
thread is woken.
"""

import abc
import contextlib
import ctypes
import math
import queue
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Protocol

from callboard.core.backend import AccelStream
from callboard.core.errors import AccelError

__all__ = ["WATCHDOG", "CompletionStrategy", "HostFnCompletion", "PolledCompletion", "StreamWork", "SyncCompletion"]

SOON = 4.0
"""See :class:`PolledCompletion`."""

WATCHDOG = 0.02
"""Seconds between polls while waiting to be woken: a stream with a sticky error may never wake the thread."""


class StreamWork(Protocol):
    """A stream, and how much work is in flight on it.

    Attributes:
        issued: Sequence number of the last op that was enqueued.
        completed: That of the last op known to be done.
    """

    issued: int
    completed: int

    @property
    def stream(self) -> AccelStream:
        """The stream: ``signal(semaphore)`` and ``synchronize()`` wait for all its work."""
        ...

    def record_event(self) -> None:
        """Record an event that covers all ops so far: they are reported although the stream is not idle."""
        ...


class CompletionStrategy(abc.ABC):
    """Decides how long the admitting thread may wait for messages, and wakes it when work is done.

    Pass an object as ``completion=`` of a device. Each context has a copy of it, made by pickle in the context's
    process: make threads and other things that do not pickle in :meth:`open`. All methods are called on the admitting
    thread. Errors of work are found by its polls, not by the strategy.

    Attributes:
        inline: The thread that awaits an op may poll for it: a poll is cheap and needs no other thread. Only for ours.
    """

    inline: ClassVar[bool] = False

    def open(self, wake: Callable[[], None], enter: Callable[[], None]) -> None:
        """The context is open.

        Args:
            wake: Wakes the admitting thread from its wait; for any thread.
            enter: Makes the context current on a thread of the strategy.
        """

    @abc.abstractmethod
    def wait(self, flying: bool) -> float | None:
        """Seconds to wait for messages: 0 to poll, None until woken.

        While ops are in flight, a strategy that is not ours waits for at most 20 ms, whatever it returns.

        Args:
            flying: Ops are in flight.
        """

    def watch(self, timelines: Sequence[StreamWork]) -> None:
        """Called before the admitting thread waits: new work may have been enqueued on some of these."""
        return

    def came(self) -> None:
        """Messages have come."""
        return

    def close(self) -> None:
        """End everything the strategy started; called once, also after an error."""


class PolledCompletion(CompletionStrategy):
    """Spin while work is in flight and for ``spin`` seconds after; block when idle.

    The fastest strategy where polling is cheap (CUDA). After a pause that was shorter than :data:`SOON` times
    ``spin``, it spins for that long: an application that waits for one device after the other, or handles each result,
    comes back so soon, and this thread need not be woken then.

    Args:
        spin: Seconds.
        clock: Monotonic seconds.

    Raises:
        ValueError: ``spin`` is not a finite number of seconds, or negative.

    Attributes:
        spin: As given.
    """

    def __init__(self, spin: float = 100e-6, clock: Callable[[], float] = time.monotonic) -> None:
        given: Any = spin
        if isinstance(given, bool) or not isinstance(given, int | float) or not 0 <= given < math.inf:
            raise ValueError(f"spin of a PolledCompletion is {spin!r}; pass a finite number of seconds, not negative")
        self.spin = spin
        self._longer = SOON * spin
        self._now = spin  # how long to spin in this pause
        self._clock = clock
        self._idle = 0.0  # since when; 0 while there is work

    def wait(self, flying: bool) -> float | None:
        if flying:
            if self._idle:
                self.came()
            return 0
        now = self._clock()
        if not self._idle:
            self._idle = now
        return 0 if now - self._idle < self._now else None

    def came(self) -> None:
        if self._idle:
            self._now = self._longer if self._clock() - self._idle < self._longer else self.spin
            self._idle = 0.0


class HostFnCompletion(CompletionStrategy):
    """The stream posts a semaphore (by a C function, without the GIL) and a waiting thread wakes the admitting one.

    Leaves the CPU core free while work is in flight, at the cost of two thread switches. A stream with a sticky error
    may not post, hence the watchdog.
    """

    def open(self, wake: Callable[[], None], enter: Callable[[], None]) -> None:
        self._wake = wake
        self._libc = ctypes.CDLL(None, use_errno=True)
        for name in ("sem_init", "sem_wait", "sem_post"):
            getattr(self._libc, name).restype = ctypes.c_int
        self._libc.sem_init.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_uint]
        self._libc.sem_wait.argtypes = self._libc.sem_post.argtypes = [
            ctypes.c_void_p
        ]  # else a pointer is cut to 32 bits
        self._memory = ctypes.create_string_buffer(64)  # sem_t is 32 bytes on glibc
        self._semaphore = ctypes.addressof(self._memory)
        self._libc.sem_init(self._semaphore, 0, 0)
        self._closed = False
        self._watched: dict[StreamWork, int] = {}
        self._thread = threading.Thread(target=self._serve, name="callboard-completion", daemon=True)
        self._thread.start()

    def wait(self, flying: bool) -> float | None:
        return WATCHDOG if flying else None

    def watch(self, timelines: Sequence[StreamWork]) -> None:
        for timeline in timelines:
            if timeline.completed < timeline.issued != self._watched.get(timeline):
                self._watched[timeline] = timeline.issued
                timeline.record_event()  # the stream is not idle while it posts
                timeline.stream.signal(self._semaphore)

    def close(self) -> None:
        self._closed = True
        self._libc.sem_post(self._semaphore)
        self._thread.join(1.0)

    def _serve(self) -> None:
        while True:
            self._libc.sem_wait(self._semaphore)
            if self._closed:
                return
            self._wake()


class SyncCompletion(CompletionStrategy):
    """A thread blocks in the stream's synchronize. Simple, and the slowest strategy."""

    def open(self, wake: Callable[[], None], enter: Callable[[], None]) -> None:
        self._wake = wake
        self._enter = enter
        self._jobs: queue.SimpleQueue[StreamWork | None] = queue.SimpleQueue()
        self._watched: dict[StreamWork, int] = {}
        self._thread = threading.Thread(target=self._serve, name="callboard-completion", daemon=True)
        self._thread.start()

    def wait(self, flying: bool) -> float | None:
        return WATCHDOG if flying else None

    def watch(self, timelines: Sequence[StreamWork]) -> None:
        for timeline in timelines:
            if timeline.completed < timeline.issued != self._watched.get(timeline):
                self._watched[timeline] = timeline.issued
                timeline.record_event()
                self._jobs.put(timeline)

    def close(self) -> None:
        self._jobs.put(None)
        self._thread.join(1.0)

    def _serve(self) -> None:
        self._enter()
        while (timeline := self._jobs.get()) is not None:
            with contextlib.suppress(AccelError):  # the admitting thread gets the same error when it queries
                timeline.stream.synchronize()
            self._wake()
