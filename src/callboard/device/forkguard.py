"""Behaviour after ``os.fork``: in a forked child, callboard's descriptors are closed and its handles raise.

A forked process shares sockets, shared memory and event loops with its parent without owning them, and only the forking
thread continues in it. callboard cannot work there, so it must fail at once and name the reason.
"""

import contextlib
import os
import sys
import threading
import traceback
import weakref
from typing import NoReturn, Protocol

from callboard.events.forking import after_fork

__all__ = ["ForkedCopy", "Guarded", "forked_error", "guard"]


class Guarded(Protocol):
    """Something that does not survive a fork."""

    def after_fork(self) -> None:
        """Runs in the child. Close descriptors with ``os.close`` and turn useless.

        Takes no lock (its holder may be a thread that no longer exists) and touches no selector or event loop (the
        parent shares their kernel state).
        """


_guarded: dict[int, "weakref.ref[Guarded]"] = {}
_registered = False


def guard(thing: Guarded) -> None:
    """Call ``thing.after_fork()`` in every forked child, as long as it lives. Any thread."""
    global _registered
    key = id(thing)
    _guarded[key] = weakref.ref(thing, lambda _: _guarded.pop(key, None))
    if not _registered:
        _registered = True
        after_fork(_after_fork)


class ForkedCopy:
    """A process that user code forked, on a thread of callboard: it is ended when that code returns in it.

    The copy has the host's sockets, and would answer and take messages in its place.

    Args:
        thread: The thread that calls user code.

    Attributes:
        here: True if this process is such a copy.
    """

    __slots__ = ("__weakref__", "_thread", "here")

    def __init__(self, thread: threading.Thread) -> None:
        self._thread = thread
        self.here = False
        guard(self)

    def after_fork(self) -> None:
        self.here = threading.current_thread() is self._thread

    def checked(self, error: BaseException) -> BaseException:
        """The error that user code raised; does not return in a copy."""
        if self.here:
            self.end(error)
        return error

    def end(self, error: BaseException | None = None) -> NoReturn:
        """End the copy, with the status of a ``SystemExit``, and otherwise with 1 and a line on stderr."""
        code = 1
        if isinstance(error, SystemExit):
            code = error.code if isinstance(error.code, int) else int(error.code is not None)
        else:
            what = "returned" if error is None else "".join(traceback.format_exception(error)).rstrip()
            with contextlib.suppress(Exception):  # the stream may be closed
                sys.stderr.write(
                    f"{self._thread.name}: process {os.getpid()}, forked by a method, came back from it and was ended; "
                    f"end such a process with os._exit(): {what}\n"
                )
                sys.stderr.flush()
        os._exit(code)


def forked_error(what: str) -> RuntimeError:
    """The error of a handle that was made before a fork and is used after it."""
    return RuntimeError(
        f"{what} was opened before os.fork() by another process and cannot be used in this one ({os.getpid()}): "
        "open the device after the fork, in the process that uses it (gunicorn: in the worker, without --preload; "
        'multiprocessing: in the worker, or use the "spawn" start method)'
    )


def _after_fork() -> None:
    things = [reference() for reference in list(_guarded.values())]
    _guarded.clear()
    for thing in things:
        if thing is not None:
            with contextlib.suppress(Exception):  # one was being closed; notify the others
                thing.after_fork()
