"""Completion strategies: how the admitting thread waits while it has nothing to admit.

All strategies query events on the admitting thread, so each of them reports the stream's error. They differ in how that
thread is woken.
"""

import abc
import contextlib
import ctypes
import queue
import threading
import time
from collections.abc import Callable, Sequence
from typing import ClassVar

from callboard.core.errors import AccelError
from callboard.device.host.context.timelines import Timeline

__all__ = ["Completion", "HostFnCompletion", "PolledCompletion", "SyncCompletion", "completion_for"]

SOON = 4.0
"""See :class:`PolledCompletion`."""

WATCHDOG = 0.02
"""Seconds between polls while waiting to be woken: a stream with a sticky error may never wake the thread."""


class Completion(abc.ABC):
    """Decides how long the admitting thread may wait for messages.

    Attributes:
        inline: The thread that awaits an op may poll for it: a poll is cheap and needs no other thread.
    """

    inline: ClassVar[bool] = False

    @abc.abstractmethod
    def wait(self, flying: bool) -> float | None:
        """Seconds to wait for messages: 0 to poll, None until woken.

        Args:
            flying: Ops are in flight.
        """

    @abc.abstractmethod
    def watch(self, timelines: Sequence[Timeline]) -> None:
        """Called before the admitting thread waits: new work may have been enqueued on some of these timelines."""

    def came(self) -> None:
        """Messages have come."""
        return

    def close(self) -> None:
        """End everything the strategy started."""


class PolledCompletion(Completion):
    """Spin while work is in flight and for ``spin`` seconds after; block when idle.

    The fastest strategy where polling is cheap (CUDA). After a pause that was shorter than :data:`SOON` times
    ``spin``, it spins for that long: an application that waits for one device after the other, or handles each result,
    comes back so soon, and this thread need not be woken then.

    Args:
        spin: Seconds.
        clock: Monotonic seconds.
    """

    def __init__(self, spin: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._spin = spin
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
            self._now = self._longer if self._clock() - self._idle < self._longer else self._spin
            self._idle = 0.0

    def watch(self, timelines: Sequence[Timeline]) -> None:
        pass


class SharedPolledCompletion(PolledCompletion):
    """Polling for a host that shares the GIL with the application.

    A loop that polls in Python would keep the GIL from the code that uses the results. So the thread waits for short
    work inside the driver, which spins without the GIL. After a wait longer than ``SHORT``, it sleeps between polls for
    a while, so that a long op does not delay the admission of others.

    Args:
        spin, clock: See :class:`PolledCompletion`.
        looks: Never wait in the driver, so that an op that does not end can be detected.
    """

    inline = True

    SHORT = 200e-6
    """Seconds. Also the longest that a message waits for admission, except after the first long op."""
    PATIENCE = 64
    """Iterations without waiting in the driver after a long wait."""
    NAP = 20e-6
    """Seconds between polls in these iterations."""

    def __init__(self, spin: float, clock: Callable[[], float] = time.monotonic, *, looks: bool = False) -> None:
        super().__init__(spin, clock)
        self._rounds = 0
        self._looks = looks

    def wait(self, flying: bool) -> float | None:
        return self.NAP if flying else None

    def watch(self, timelines: Sequence[Timeline]) -> None:
        if self._looks:
            return
        if self._rounds:
            self._rounds -= 1
            return
        busy = [timeline for timeline in timelines if timeline.completed < timeline.issued]
        if len(busy) == 1 and len(busy[0].ops) <= 2:
            began = self._clock()
            busy[0].finish()
            if self._clock() - began > self.SHORT:
                self._rounds = self.PATIENCE


class HostFnCompletion(Completion):
    """The stream posts a semaphore (by a C function, without the GIL) and a waiting thread wakes the admitting one.

    Leaves the CPU core free while work is in flight, at the cost of two thread switches. A stream with a sticky error
    may not post, hence the watchdog.
    """

    def __init__(self, wake: Callable[[], None]) -> None:
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
        self._watched: dict[Timeline, int] = {}
        self._thread = threading.Thread(target=self._serve, name="callboard-completion", daemon=True)
        self._thread.start()

    def wait(self, flying: bool) -> float | None:
        return WATCHDOG if flying else None

    def watch(self, timelines: Sequence[Timeline]) -> None:
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


class SyncCompletion(Completion):
    """A thread blocks in the stream's synchronize. Simple, and the slowest strategy."""

    def __init__(self, wake: Callable[[], None], enter: Callable[[], None]) -> None:
        self._wake = wake
        self._enter = enter
        self._jobs: queue.SimpleQueue[Timeline | None] = queue.SimpleQueue()
        self._watched: dict[Timeline, int] = {}
        self._thread = threading.Thread(target=self._serve, name="callboard-completion", daemon=True)
        self._thread.start()

    def wait(self, flying: bool) -> float | None:
        return WATCHDOG if flying else None

    def watch(self, timelines: Sequence[Timeline]) -> None:
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


def completion_for(
    name: str, spin: float, wake: Callable[[], None], enter: Callable[[], None], *, shared: bool, looks: bool = False
) -> Completion:
    """The strategy of this name.

    Args:
        name: ``"polled"``, ``"host_fn"`` or ``"sync"``.
        spin: Seconds that polling continues after the last op.
        wake: Wakes the admitting thread.
        enter: Makes the context current on a thread of the strategy.
        shared: The host shares the GIL with the application's threads.
        looks: The admitting thread must not block on an op that does not end.
    """
    if name == "host_fn":
        return HostFnCompletion(wake)
    if name == "sync":
        return SyncCompletion(wake, enter)
    return SharedPolledCompletion(spin, looks=looks) if shared else PolledCompletion(spin)
