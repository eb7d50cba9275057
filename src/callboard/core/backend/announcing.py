"""One line on stderr before a first use that takes seconds, which looks like a hang otherwise."""

import sys
import threading
from contextlib import suppress

__all__ = ["NOTICE", "announce"]

NOTICE = "callboard: compiling "
"""Beginning of the line."""

_said: set[str] = set()
_lock = threading.Lock()


def announce(what: str, folder: object) -> None:
    """Say that something is compiled, once in a process.

    It is printed and not logged: scripts and notebooks, which configure no logging, are where it is waited for. From a
    host's process it comes to the application as all its output does.

    Args:
        what: What is compiled, and by what.
        folder: Where it is kept, so that the next process need not wait.
    """
    with _lock:
        if what in _said:
            return
        _said.add(what)
    with suppress(OSError, ValueError, AttributeError):  # closed, or there is none: nothing depends on it
        sys.stderr.write(f"{NOTICE}{what}, once; kept in {folder}\n")
        sys.stderr.flush()
