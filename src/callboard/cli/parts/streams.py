"""The standard streams of the command line, where its caller has closed some."""

import os
import sys

__all__ = ["open_missing"]


def open_missing() -> None:
    """Let closed descriptors below 3 be the null device: files and sockets would get their numbers.

    ``sys.stdin`` and ``sys.stderr`` are streams then. ``sys.stdout`` stays None: no command has an effect without it.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # the lowest number that is free
    if sys.stdin is None:
        sys.stdin = os.fdopen(0, closefd=False)
    if sys.stderr is None:
        sys.stderr = os.fdopen(2, "w", errors="backslashreplace", closefd=False)
