"""``HostGroup``: the processes that a host has started, which end with it."""

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable

__all__ = ["HostGroup"]

GRACE = 0.5
"""Seconds between SIGTERM and SIGKILL, and then those that a killed process gets to go."""
PAUSES = (0.002, 0.1)
"""Seconds between two polls, the first and the most: no event tells of the end of a process that is no child."""


class HostGroup:
    """The process group that a host leads (``launch`` starts it in a session of its own).

    Processes that actors start belong to it, whatever starts them, unless they make a group or a session of their own.
    SIGTERM comes first, because multiprocessing's resource tracker ignores it: it ends when the others have, and then
    removes the shared memory that they could not.

    The kernel gives the number of a group to no process while a member exists, the unreaped host included. So it is
    signalled before the host is reaped, and afterwards only where that has left members.

    Args:
        loop: The loop on whose thread this is used.
        leader: Process id of the host.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, leader: int) -> None:
        self._loop = loop
        self._leader = leader
        self._killed = False

    def terminate(self) -> None:
        """Send SIGTERM to all; the host must not be reaped yet."""
        self._send(signal.SIGTERM)

    def when_gone(self, then: Callable[[bool], None]) -> None:
        """Call ``then`` when no member runs; those that SIGTERM has not ended get SIGKILL.

        Args:
            then: Called with True, or with False if killed processes still run after ``GRACE``.
        """
        self._poll(then, GRACE, PAUSES[0])

    def _poll(self, then: Callable[[bool], None], left: float, pause: float) -> None:
        if not self._runs():
            then(True)
        elif left > 0:  # a pause counts as itself, however late it ends: the members may not have run either
            self._loop.call_later(pause, self._poll, then, left - pause, min(2 * pause, PAUSES[1]))
        elif self._killed:
            then(False)
        else:
            self._killed = True
            self._send(signal.SIGKILL)
            self.when_gone(then)

    def _runs(self) -> bool:
        """Whether a member runs: one that has ended, but was not waited for by PID 1 yet, is a member, too."""
        if not self._send(0):
            return False
        try:
            return any(_group_of(pid) == self._leader for pid in filter(str.isdigit, os.listdir("/proc")))
        except OSError:  # no descriptor to look with: the signal had a receiver
            return True

    def _send(self, number: int) -> bool:
        """Signal all; False if there is none that this process may signal."""
        try:
            os.killpg(self._leader, number)
        except (ProcessLookupError, PermissionError):
            return False
        return True


def _group_of(pid: str) -> int | None:
    """The group of a process; None if it has ended.

    Raises:
        OSError: This process has no descriptor left.
    """
    with (
        contextlib.suppress(FileNotFoundError, ProcessLookupError, PermissionError),
        open(f"/proc/{pid}/stat", "rb") as stat,
    ):
        state, _, group, *_ = stat.read().rpartition(b")")[2].split(None, 3)  # behind "pid (name)"
        return None if state in b"ZX" else int(group)
    return None
