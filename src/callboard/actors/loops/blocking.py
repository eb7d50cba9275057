"""Waiting on a thread that has no loop."""

import concurrent.futures
import threading
import time
import weakref
from typing import TypeVar

from callboard.actors.loops.bell import Bell
from callboard.events.forking import after_fork

__all__ = ["SLICE", "Waiter", "descriptors", "wait"]

T = TypeVar("T")

SLICE = 0.25
"""Seconds between checks. CPython acts on a signal between two bytecodes, or when the signal interrupts the wait
itself. A signal that arrives just before the wait, or is delivered to another thread, does neither; without these
checks the wait would notice a Ctrl-C only at its end."""


class _Bells(threading.local):
    """The bells of a thread: one, unless a signal's handler or a finalizer waits while the thread waits already."""

    def __init__(self) -> None:
        self._free: list[Bell] = []

    def take(self) -> Bell:
        """A bell for one wait."""
        if self._free:
            return self._free.pop()
        bell = Bell()
        with _lock:
            _all.add(bell)
        return bell

    def give(self, bell: Bell) -> None:
        """The wait is over; a ring that comes late is heard by a later one."""
        self._free.append(bell)


_lock = threading.RLock()
_all: weakref.WeakSet[Bell] = weakref.WeakSet()
_bells = _Bells()


def _renew_bells() -> None:
    """In a forked child: its threads and those of the parent must not hear each other's bells."""
    global _bells, _lock
    _bells, _lock = _Bells(), threading.RLock()


after_fork(_renew_bells)


def descriptors() -> frozenset[int | None]:
    """Descriptors of the threads' bells, which last as long as the threads."""
    with _lock:
        return frozenset(bell.descriptor for bell in _all)


class Waiter:
    """Lets the thread that made it wait for another one, once. Has the interface of a future."""

    __slots__ = ("_bell", "_done")

    def __init__(self) -> None:
        self._bell = _bells.take()
        self._done = False

    def done(self) -> bool:
        return self._done

    def set_result(self, _: object = None) -> None:
        """End the wait. Any thread."""
        self._done = True
        self._bell.ring()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until :meth:`set_result` is called, for at most ``timeout`` seconds; returns whether it was.

        A Ctrl-C is acted on within :data:`SLICE` seconds, whenever it comes.
        """
        until = None if timeout is None else time.monotonic() + timeout
        try:
            while not self._done:
                left = SLICE if until is None else min(SLICE, until - time.monotonic())
                if left <= 0.0:
                    return False
                self._bell.wait(left)  # it may also have rung for an earlier wait, which was given up
            return True
        finally:
            _bells.give(self._bell)


def wait(future: "concurrent.futures.Future[T]", timeout: float | None = None) -> T:
    """``future.result(timeout)``; a Ctrl-C is acted on within :data:`SLICE` seconds, whenever it comes.

    Args:
        future: The future to wait for.
        timeout: Seconds; None waits for ever.

    Raises:
        TimeoutError: It was not done in time, or it raised ``TimeoutError`` itself: ``future.done()`` distinguishes the
            two.
    """
    if not future.done():
        waiter = Waiter()
        future.add_done_callback(waiter.set_result)
        if not waiter.wait(timeout):
            raise TimeoutError
    return future.result()
