"""The guardian of a host: a small process that ends what the host has started, however the host has ended.

The application ends the processes that a host has started, but not if it is killed itself: the kernel then kills the
host (``PR_SET_PDEATHSIG``), and nothing beyond. The guardian is forked by the host, which has one thread then, and
waits for its end. It belongs to the host's process group, so the number of the group is not given away while it lives.
"""

import contextlib
import os
import select
import signal
import time
from collections.abc import Iterator
from typing import NoReturn

__all__ = ["MARK", "fork_guardian"]

MARK = "CALLBOARD_GUARDED"
"""Environment variable of the host, which its descendants inherit; by its value they are recognised."""

GRACE = 0.25
"""Seconds between SIGTERM and SIGKILL; less than the application's, which ends the guardian with the group."""

PAUSE = 0.01

LONGEST = 10.0
"""Seconds after which processes that a driver keeps alive are given up."""


def fork_guardian() -> None:
    """Start the guardian of this process, which has one thread. It is no child, which user code might wait for.

    Raises:
        OSError: No process can be made.
    """
    host = os.getpid()
    first = os.fork()
    if first:
        os.waitpid(first, 0)
        return
    try:
        if os.fork() == 0:
            _guard(host)
    finally:  # also where the second fork fails
        os._exit(0)


def _guard(host: int) -> NoReturn:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the group gets it
    with open(os.devnull, "r+b") as nothing:
        for descriptor in range(3):
            os.dup2(nothing.fileno(), descriptor)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))  # the host's sockets end with the host
    with contextlib.suppress(OSError):  # it has ended already
        select.select([os.pidfd_open(host)], [], [])
    end_all(host, os.environ.get(MARK, ""))
    os._exit(0)


def end_all(group: int, mark: str) -> None:
    """End the members of a process group, and the processes with a mark; SIGTERM first, SIGKILL after a grace."""
    asked: set[int] = set()
    began = time.monotonic()
    while time.monotonic() - began < LONGEST:
        number = signal.SIGTERM if time.monotonic() - began < GRACE else signal.SIGKILL
        found = False
        for pid in _members(group, mark):
            found = True
            if number is signal.SIGKILL or pid not in asked:
                asked.add(pid)
                _send(pid, number, group, mark)
        if not found:
            return
        time.sleep(PAUSE)


def _members(group: int, mark: str) -> Iterator[int]:
    own = os.getpid()
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != own and _belongs(int(name), group, mark):
            yield int(name)


def _belongs(pid: int, group: int, mark: str) -> bool:
    with contextlib.suppress(OSError):  # it has ended, or is another user's
        with open(f"/proc/{pid}/stat", "rb") as stat:
            state, _, its_group, *_ = stat.read().rpartition(b")")[2].split(None, 3)  # behind "pid (name)"
        if state in b"ZX":
            return False
        if int(its_group) == group:
            return True
        with open(f"/proc/{pid}/environ", "rb") as environment:
            return bool(mark) and f"{MARK}={mark}".encode() in environment.read().split(b"\0")
    return False


def _send(pid: int, number: int, group: int, mark: str) -> None:
    """Signal a process, if it still is the one that was found."""
    with contextlib.suppress(OSError):
        process = os.pidfd_open(pid)
        try:
            if _belongs(pid, group, mark):
                signal.pidfd_send_signal(process, number)
        finally:
            os.close(process)
