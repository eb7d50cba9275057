"""Behaviour after ``os.fork``: in a forked child, callboard's descriptors are closed and its handles raise.

A forked process shares sockets, shared memory and event loops with its parent without owning them, and only the forking
thread continues in it. callboard cannot work there, so it must fail at once and name the reason.
"""

import contextlib
import os
import weakref
from typing import Protocol

__all__ = ["Guarded", "forked_error", "guard"]


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
        os.register_at_fork(after_in_child=_after_fork)


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
