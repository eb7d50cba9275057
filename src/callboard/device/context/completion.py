"""Completion: how the admitting thread waits while it has nothing to admit.

All strategies learn the outcome in the same way, by querying events on the admitting thread, so each reports the
stream's error; they differ in what wakes that thread.
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
from callboard.device.context.tracks import Track

__all__ = ["Completion", "HostFnCompletion", "PolledCompletion", "SyncCompletion", "completion_for"]

WATCHDOG = 0.02
"""Seconds between looks at the events while waiting to be woken: a stream with a sticky error wakes nobody."""


class Completion(abc.ABC):
    """Decides how long the admitting thread may wait for messages.

    Attributes:
        visits: Whoever waits for an op may look for it himself: a look is cheap and needs no other thread.
    """

    visits: ClassVar[bool] = False

    @abc.abstractmethod
    def wait(self, flying: bool) -> float | None:
        """Seconds to wait for messages: 0 only looks, None until woken.

        Args:
            flying: Ops are in flight.
        """

    @abc.abstractmethod
    def watch(self, tracks: Sequence[Track]) -> None:
        """New work may have been enqueued on some of these tracks; the admitting thread is about to wait."""

    def close(self) -> None:
        """End what the strategy started."""


class PolledCompletion(Completion):
    """Spin while work is in flight, and ``spin`` seconds longer; block when idle.

    The fastest where polling is cheap (CUDA).

    Args:
        spin: Seconds.
        clock: Monotonic seconds.
    """

    def __init__(self, spin: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._spin = spin
        self._clock = clock
        self._until = 0.0

    def wait(self, flying: bool) -> float | None:
        if flying:
            self._until = 0.0
            return 0
        now = self._clock()
        if self._until == 0.0:
            self._until = now + self._spin
        return 0 if now < self._until else None

    def watch(self, tracks: Sequence[Track]) -> None:
        pass


class SharedPolledCompletion(PolledCompletion):
    """Polling for a host that shares the GIL with the application.

    A loop that polls in Python would keep the GIL from whoever is to use the results. So short work is waited for
    inside the driver, which spins without the GIL; after a wait that took longer than ``SHORT``, the thread sleeps
    between looks for a while, so that a long op does not hold back the admission of others.

    Args:
        spin, clock: As of :class:`PolledCompletion`.
        looks: Never wait in the driver, so that somebody can see that an op does not end.
    """

    visits = True

    SHORT = 200e-6
    """Seconds; also an upper bound of what a message may wait for admission, but for the first long op."""
    PATIENCE = 64
    """Rounds without waiting in the driver after a long wait."""
    NAP = 20e-6
    """Seconds between looks then."""

    def __init__(self, spin: float, clock: Callable[[], float] = time.monotonic, *, looks: bool = False) -> None:
        super().__init__(spin, clock)
        self._rounds = 0
        self._looks = looks

    def wait(self, flying: bool) -> float | None:
        return self.NAP if flying else None

    def watch(self, tracks: Sequence[Track]) -> None:
        if self._looks:
            return
        if self._rounds:
            self._rounds -= 1
            return
        busy = [track for track in tracks if track.completed < track.issued]
        if len(busy) == 1 and len(busy[0].ops) <= 2:
            began = self._clock()
            busy[0].finish()
            if self._clock() - began > self.SHORT:
                self._rounds = self.PATIENCE


class HostFnCompletion(Completion):
    """The stream posts a semaphore (by a C function, without the GIL) and a waiting thread wakes the admitting one.

    Leaves the core to others while work is in flight, at the price of two thread switches. A stream with a sticky error
    may post nothing, hence the watchdog.
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
        self._watched: dict[Track, int] = {}
        self._thread = threading.Thread(target=self._serve, name="callboard-completion", daemon=True)
        self._thread.start()

    def wait(self, flying: bool) -> float | None:
        return WATCHDOG if flying else None

    def watch(self, tracks: Sequence[Track]) -> None:
        for track in tracks:
            if self._watched.get(track) != track.issued:
                self._watched[track] = track.issued
                track.seal()  # the stream is not idle while it posts
                track.stream.signal(self._semaphore)

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
    """A thread blocks in the stream's synchronize; simple, and the slowest."""

    def __init__(self, wake: Callable[[], None], enter: Callable[[], None]) -> None:
        self._wake = wake
        self._enter = enter
        self._jobs: queue.SimpleQueue[Track | None] = queue.SimpleQueue()
        self._watched: dict[Track, int] = {}
        self._thread = threading.Thread(target=self._serve, name="callboard-completion", daemon=True)
        self._thread.start()

    def wait(self, flying: bool) -> float | None:
        return WATCHDOG if flying else None

    def watch(self, tracks: Sequence[Track]) -> None:
        for track in tracks:
            if self._watched.get(track) != track.issued:
                self._watched[track] = track.issued
                track.seal()
                self._jobs.put(track)

    def close(self) -> None:
        self._jobs.put(None)
        self._thread.join(1.0)

    def _serve(self) -> None:
        self._enter()
        while (track := self._jobs.get()) is not None:
            with contextlib.suppress(AccelError):  # the admitting thread sees it in the event, and acts on it
                track.stream.synchronize()
            self._wake()


def completion_for(
    name: str, spin: float, wake: Callable[[], None], enter: Callable[[], None], *, shared: bool, looks: bool = False
) -> Completion:
    """The strategy of this name.

    Args:
        name: ``"polled"``, ``"host_fn"`` or ``"sync"``.
        spin: Seconds that polling goes on after the last op.
        wake: Wakes the admitting thread.
        enter: Makes the context current on a thread of the strategy.
        shared: The application's threads need the same GIL.
        looks: The admitting thread may not be held by an op that does not end.
    """
    if name == "host_fn":
        return HostFnCompletion(wake)
    if name == "sync":
        return SyncCompletion(wake, enter)
    return SharedPolledCompletion(spin, looks=looks) if shared else PolledCompletion(spin)
