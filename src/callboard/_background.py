"""The event loop of :mod:`callboard.sync`, on a thread of its own, as long as something of it is open."""

import asyncio
import atexit
import concurrent.futures
import sys
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from callboard.actors.handles import Handle
from callboard.actors.loops.blocking import wait
from callboard.core.errors import DeviceStopped
from callboard.device import forkguard, leftthreads

__all__ = ["BackgroundLoop", "interrupted", "open_loop"]

T = TypeVar("T")


class BackgroundLoop(Handle):
    """One thread that runs a loop, shared by its users; it ends when the last one lets go."""

    def __init__(self) -> None:
        self.users: set[Callable[[], None]] = set()
        self.forked = False
        self._gate = threading.RLock()  # what is posted comes before the end of the loop, or is refused
        self._over = False
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="callboard-sync", daemon=True)
        self._thread.start()
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

    def start(self, work: Coroutine[Any, Any, T]) -> "concurrent.futures.Future[T]":
        """Run a coroutine on the loop.

        Raises:
            DeviceStopped: Everything on the loop has been closed.
            RuntimeError: In a forked process.
        """
        if not self.forked:
            with self._gate:
                if not self._over:
                    return asyncio.run_coroutine_threadsafe(work, self.loop)
        work.close()
        raise forkguard.forked_error("a cb.sync device") if self.forked else DeviceStopped("the device is closed")

    def leave(self, user: Callable[[], None]) -> None:
        """A user is done; the last one ends the thread."""
        global _current
        with _lock:
            self.users.discard(user)
            if self.users or self.forked or _current is not self:
                return
            _current = None
        with self._gate:
            self._over = True
            asyncio.run_coroutine_threadsafe(_end(), self.loop)
        self._thread.join()
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
    await asyncio.gather(*others, return_exceptions=True)
    await loop.shutdown_asyncgens()
    loop.stop()


_current: BackgroundLoop | None = None
_lock = threading.Lock()


def open_loop(close: Callable[[], None]) -> BackgroundLoop:
    """The loop of this process, started at first use; the caller keeps it open until it calls ``leave(close)``.

    Args:
        close: Ends the caller's work on it; called when the interpreter exits before that.
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


def interrupted() -> bool:
    """True if Ctrl-C is the reason for the running code: it is being handled, or has ended the program."""
    error = sys.exc_info()[1]
    if error is None and not threading.main_thread().is_alive():  # the interpreter exits
        error = getattr(sys, "last_value", None)
    return isinstance(error, KeyboardInterrupt)


def _close_all() -> None:
    while _current is not None and _current.users:
        next(iter(_current.users))()
