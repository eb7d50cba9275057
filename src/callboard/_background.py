"""The event loop of :mod:`callboard.sync`, on a thread of its own, as long as something of it is open."""

import asyncio
import atexit
import concurrent.futures
import contextlib
import logging
import sys
import threading
import time
import weakref
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from callboard.actors.handles import Handle
from callboard.actors.loops.blocking import wait
from callboard.core.errors import DeviceStopped
from callboard.device import forkguard, leftthreads

__all__ = ["BackgroundLoop", "open_loop", "patience"]

T = TypeVar("T")

_log = logging.getLogger("callboard.sync")

LAST = 1.0
"""Seconds that all endings together get after a Ctrl-C, before the caller goes on and leaves them to the loop."""
AT_ONCE = 0.1
"""The same after another one."""


class BackgroundLoop(Handle):
    """One thread that runs a loop, shared by its users; it ends when the last one has left.

    Attributes:
        users: What ends each user's work.
        forked: This is a forked process, where the thread does not exist.
    """

    def __init__(self) -> None:
        self.users: set[Callable[[], None]] = set()
        self.forked = False
        self._gate = threading.RLock()  # what is posted comes before the end of the loop, or is refused
        self._over = False
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="callboard-sync", daemon=True)
        self._thread.start()
        _running.add(self)
        forkguard.guard(self)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop and wait for it.

        Ctrl-C ends the wait at once and cancels the coroutine, but not the op that it waits for.

        Raises:
            DeviceStopped: Everything on the loop has been closed, before or meanwhile.
            RuntimeError: In a forked process.
        """
        future = self.start(work)
        try:
            return wait(future)
        except concurrent.futures.CancelledError:
            raise DeviceStopped("the device was closed while this call waited") from None
        except BaseException:  # Ctrl-C, too
            future.cancel()  # harmless when it is the coroutine's own error
            raise

    def call(self, function: Callable[[], T]) -> T:
        """Call a function on the loop and wait for it. Errors as :meth:`run`."""

        async def called() -> T:
            return function()

        return self.run(called())

    def start(self, work: Coroutine[Any, Any, T]) -> "concurrent.futures.Future[T]":
        """Run a coroutine on the loop.

        Raises:
            DeviceStopped: Everything on the loop has been closed.
            RuntimeError: In a forked process, or on the loop's own thread, which would wait for itself.
        """
        begun = False
        try:
            self.check_thread()
            if self.forked:
                raise forkguard.forked_error("a cb.sync device")
            with self._gate:
                if self._over:
                    raise DeviceStopped("the device is closed")
                begun = True
                return asyncio.run_coroutine_threadsafe(work, self.loop)
        finally:
            if not begun:  # refused, or Ctrl-C came before
                work.close()

    def check_thread(self) -> None:
        """Refuse a blocking call on the loop's own thread.

        Raises:
            RuntimeError
        """
        if threading.current_thread() is self._thread and not self.forked:
            raise RuntimeError(
                "a blocking call of cb.sync on the thread of its own loop (a hook, or a function of a server with "
                "executor='loop') would wait for itself; call it on another thread, or hand the data to one by a queue"
            )

    def finish(
        self,
        work: Coroutine[Any, Any, object],
        hurry: Callable[[], object],
        user: Callable[[], None] | None = None,
    ) -> None:
        """Run a coroutine that ends something, and wait for it.

        Ctrl-C, meanwhile or as the reason for this call, makes it hurry; after :data:`LAST` seconds, or a second
        Ctrl-C, the caller goes on, and the loop does the rest.

        Args:
            work: What ends it.
            hurry: Makes ``work`` hurry; called on the loop.
            user: The user whose work it is; it has left when ``work`` has ended.

        Raises:
            DeviceStopped, RuntimeError: See :meth:`start`.
        """
        try:
            future = self.start(work)
        except BaseException:  # Ctrl-C, too
            self._leave(user)
            raise
        future.add_done_callback(lambda _: self._leave(user))
        left = patience()
        if left is not None:
            self._hasten(future, hurry, left)
            return
        try:
            try:
                wait(future)
            except concurrent.futures.CancelledError:  # another thread has ended everything
                pass
            finally:
                if future.done():
                    self._joined(None)
        except KeyboardInterrupt:
            self._hasten(future, hurry, patience() or 0.0)
            raise

    def _hasten(self, work: "concurrent.futures.Future[object]", hurry: Callable[[], object], seconds: float) -> None:
        """Make ``work`` hurry, and wait for it and for the thread this long at most."""
        until = time.monotonic() + seconds
        with self._gate:
            if not work.done():
                self.loop.call_soon_threadsafe(hurry)
        try:
            wait(work, seconds)
        except concurrent.futures.CancelledError:
            return
        except TimeoutError:
            if work.done():
                raise
        else:
            self._joined(until - time.monotonic())

    def leave(self, user: Callable[[], None]) -> None:
        """A user is done; the last one ends the thread."""
        self._leave(user)
        self._joined(patience())

    def _leave(self, user: Callable[[], None] | None) -> None:
        """A user is done; the last one has the thread end. Any thread."""
        global _current
        with _lock:
            if user is not None:
                self.users.discard(user)
            if self.users or self.forked or _current is not self:
                return
            _current = None
        with self._gate:
            self._over = True
            asyncio.run_coroutine_threadsafe(_end(), self.loop)

    def _joined(self, seconds: float | None) -> None:
        """Wait until the thread has ended, if it is about to; None: for any time."""
        if self._over and not self.forked:
            self._thread.join(seconds if seconds is None else max(0.0, seconds))

    def abandon(self) -> None:
        """The interpreter exits before the work that is left here: asyncio says nothing of its tasks."""
        if self._thread.is_alive():
            for task in asyncio.all_tasks(self.loop):
                task._log_destroy_pending = False  # type: ignore[attr-defined]  # as asyncio.run_until_complete does

    def _run(self) -> None:
        self.loop.run_forever()
        self.loop.close()

    def after_fork(self) -> None:
        """In a forked child: the thread is not there, and the loop's selector is the parent's."""
        global _current, _lock
        self.forked = True
        self.users.clear()
        _current, _lock = None, threading.Lock()


async def _end() -> None:
    """No wait outlasts a loop that stops."""
    loop = asyncio.get_running_loop()
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    if others:
        _, stubborn = await asyncio.wait(others, timeout=LAST)
        for task in stubborn:
            _log.warning("%s goes on after it was cancelled; it is left behind", task.get_name())
    await loop.shutdown_asyncgens()
    loop.stop()


_current: BackgroundLoop | None = None
_running: "weakref.WeakSet[BackgroundLoop]" = weakref.WeakSet()
"""Those whose threads may run: also after their last user has left."""
_lock = threading.Lock()


def open_loop(close: Callable[[], None]) -> BackgroundLoop:
    """The loop of this process, started at first use; the caller keeps it open until it calls ``leave(close)``.

    Args:
        close: Ends the caller's work on it; called when the interpreter exits before that. Another object each time.
    """
    global _current
    with _lock:
        if _current is None:
            _current = BackgroundLoop()
            leftthreads.guard()  # before: what is open is closed first
            atexit.unregister(_close_all)
            atexit.register(_close_all)
        _current.users.add(close)
        return _current


def patience() -> float | None:
    """Seconds left for endings, if Ctrl-C is the reason for the running code; None if it is not.

    It is the reason while it is being handled, and when it has ended the program.
    """
    error = sys.exc_info()[1]
    if error is None and not threading.main_thread().is_alive():  # the interpreter exits
        error = getattr(sys, "last_value", None)
    now = time.monotonic()
    pressed: list[KeyboardInterrupt] = []  # the last one first: each was raised while the one before was handled
    while error is not None:
        if isinstance(error, KeyboardInterrupt):
            pressed.append(error)
        error = error.__context__
    if not pressed:
        return None
    until = now + (LAST if len(pressed) == 1 else AT_ONCE)
    for each in pressed:
        until = min(until, vars(each).get("_callboard_until", until))
    vars(pressed[0])["_callboard_until"] = until
    return max(0.0, until - now)


def _close_all() -> None:
    """End everything when the interpreter exits. A Ctrl-C makes all that is left hurry, and is not reported."""
    asked: set[Callable[[], None]] = set()
    try:
        while _close_next(asked):
            pass
    except KeyboardInterrupt:  # the reason for the rest, too, as long as it is handled here
        more = True
        while more:
            with contextlib.suppress(KeyboardInterrupt):
                more = _close_next(asked)
    for background in list(_running):
        background.abandon()


def _close_next(asked: set[Callable[[], None]]) -> bool:
    """End the work of a user that has not been ``asked``; False if there is none."""
    left = set() if _current is None else _current.users - asked
    if not left:
        return False
    close = left.pop()
    asked.add(close)
    close()
    return True
