"""``Helm``: which thread serves a context host: its own, or that of a resident actor whose calls are short.

A short call on the thread that received it saves two thread switches, which cost more than such a call. The thread of
an actor that is called alone therefore receives the host's messages itself, admits their ops, and runs its own calls in
between. While it runs user code, which is not part of the host, another thread may take over: after :data:`LIMIT` the
host's own thread serves again, and the call continues like any other.
"""

import contextlib
import ctypes
import functools
import os
import select
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

__all__ = ["LIMIT", "Helm", "new_helm"]

LIMIT = 3e-3
"""Seconds of a call after which the host's own thread serves again; at most twice as many."""


class Helm:
    """Permission to serve the host: one thread holds it at a time. Created, and first held, by the host's own thread.

    Attributes:
        holder: The actor whose thread serves; None for the host's own thread.
        terms: Number of times that the helm was passed to an actor. The thread that passes it compares this number
            instead of the holder, since the helm may return before that thread checks.
    """

    def __init__(self) -> None:
        self.holder: Any = None
        self.terms = 0
        self._lock = threading.Lock()
        self._gone: weakref.WeakSet[Any] = weakref.WeakSet()
        self._since = 0.0  # when the holder began a call; 0 while it serves
        self._armed = False  # the timer is set, and the host's own thread has not looked since
        self._failure: BaseException | None = None
        self._timer = _Timer()
        try:
            self._bell = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        except OSError:
            self._timer.close()
            raise
        self._poll = select.poll()
        self._poll.register(self._timer.descriptor, select.POLLIN)
        self._poll.register(self._bell, select.POLLIN)

    # -- the thread that serves ----------------------------------------------------------------------------------------

    def pass_to(self, actor: Any, hand_over: Callable[[], None]) -> None:
        """Let an actor serve, which ``hand_over`` gives its next calls; the calling thread leaves the host alone then.

        The actor does not begin to serve before it has all of them: calls that it receives are ordered after these.
        """
        with self._lock:
            if actor not in self._gone:
                self.terms += 1
                self.holder = actor
            hand_over()

    def enter(self) -> int:
        """The holder begins to serve; gives :attr:`terms`."""
        with self._lock:
            return self.terms

    def leave(self, actor: Any) -> None:
        """The actor's thread ends: it will not serve any more."""
        with self._lock:
            self._gone.add(actor)
        if self.holder is actor:
            self.give_back()

    def give_back(self, failure: BaseException | None = None) -> None:
        """Let the host's own thread serve again.

        Args:
            failure: Exception that serving raised; raised again in the host's own thread.
        """
        with self._lock:  # a thread that sees no holder was already woken: the bell may be closed then
            self._failure = failure
            self.holder = None
            os.eventfd_write(self._bell, 1)

    def begin(self) -> None:
        """The holder calls user code: until :meth:`end`, its place may be taken."""
        self._since = time.monotonic()
        if not self._armed:  # setting the timer for each call would cost more than many a call
            self._armed = True
            self._timer.set(LIMIT)

    def end(self, actor: Any) -> bool:
        """User code of an actor has returned; whether the actor is (still) the holder. Any actor's thread."""
        with self._lock:
            if self.holder is not actor:
                return False
            self._since = 0.0
            return True

    # -- the host's own thread -----------------------------------------------------------------------------------------

    def wait(self) -> None:
        """Wait until the calling thread is to serve again.

        Raises:
            BaseException: The exception that another thread raised while it served.
        """
        while not self._returned():
            self._poll.poll()
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def _returned(self) -> bool:
        self._timer.clear()  # before the note below: a timer that a call sets after the note must go off
        self._armed = False  # before looking: a call that begins after the look sets the timer itself
        with self._lock:
            if self.holder is not None:
                if not self._since:
                    return False
                left = self._since + LIMIT - time.monotonic()
                if left > 0:
                    self._armed = True
                    self._timer.set(left)
                    return False
                self.holder = None
                self._since = 0.0
                return True
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._bell)
        return True

    def close(self) -> None:
        """Note that no thread waits any more."""
        self._timer.close()
        os.close(self._bell)


def new_helm() -> Helm | None:
    """A helm, or None: the system has no eventfd, or this process no descriptor left. One thread serves then."""
    if hasattr(os, "eventfd"):
        with contextlib.suppress(OSError):
            return Helm()
    return None


class _Timer:
    """A timer whose descriptor becomes readable; setting it costs one system call, and no thread."""

    def __init__(self) -> None:
        libc = _libc()
        self.descriptor: int = libc.timerfd_create(time.CLOCK_MONOTONIC, os.O_CLOEXEC | os.O_NONBLOCK)
        if self.descriptor < 0:
            error = ctypes.get_errno()
            raise OSError(error, os.strerror(error))
        self._settime = libc.timerfd_settime
        self._span = (ctypes.c_long * 4)()  # struct itimerspec: the interval, which is 0, and the first time
        self._at = ctypes.addressof(self._span)

    def set(self, seconds: float) -> None:
        """Fire once, after this number of seconds; less than a second."""
        self._span[3] = max(1, int(seconds * 1e9))
        self._settime(self.descriptor, 0, self._at, None)

    def clear(self) -> None:
        """Forget that it went off."""
        with contextlib.suppress(BlockingIOError):
            os.read(self.descriptor, 8)

    def close(self) -> None:
        os.close(self.descriptor)


@functools.cache
def _libc() -> Any:
    libc = ctypes.PyDLL(None, use_errno=True)  # the calls are too short to release the GIL for
    libc.timerfd_settime.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]
    return libc
