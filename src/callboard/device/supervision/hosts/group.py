"""``HostGroup``: the processes that a host has started, which end with it."""

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable

from callboard.device.host.processgroup import GRACE, PAUSES, runs

__all__ = ["HostGroup"]


class HostGroup:
    """The process group that a host leads (``launch`` starts it in a session of its own).

    Processes that actors start belong to it, whatever starts them, unless they make a group or a session of their own.
    SIGTERM comes first, because multiprocessing's resource tracker ignores it: it ends when the others have, and then
    removes the shared memory that they could not.

    The kernel gives the number of a group to no process while a member exists, the unreaped host included. So it is
    signalled before the host is reaped, and afterwards only where that has left members.

    Where the application ends first, a member ends the others (:mod:`callboard.device.host.offspring`).

    Args:
        loop: The loop on whose thread this is used.
        leader: Process id of the host.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, leader: int) -> None:
        self._loop = loop
        self._leader = leader
        self._until = 0.0
        self._killed = False

    def terminate(self) -> None:
        """Send SIGTERM to all; the host must not be reaped yet."""
        self._send(signal.SIGTERM)

    def when_gone(self, then: Callable[[bool], None]) -> None:
        """Call ``then`` when no member runs; those that SIGTERM has not ended get SIGKILL.

        Args:
            then: Called with True, or with False if killed processes still run after ``GRACE``.
        """
        self._until = self._loop.time() + GRACE
        self._poll(then, PAUSES[0])

    def _poll(self, then: Callable[[bool], None], pause: float) -> None:
        if not (self._send(0) and runs(self._leader)):
            self._wait_for_ended()
            then(True)
        elif self._loop.time() < self._until:
            self._loop.call_later(pause, self._poll, then, min(2 * pause, PAUSES[1]))
        elif self._killed:
            then(False)
        else:
            self._killed = True
            self._send(signal.SIGKILL)
            self.when_gone(then)

    def _send(self, number: int) -> bool:
        """Signal all; False if there is none that this process may signal."""
        try:
            os.killpg(self._leader, number)
        except (ProcessLookupError, PermissionError):
            return False
        return True

    def _wait_for_ended(self) -> None:
        """Wait for members that are this process's children now: it is PID 1 of a container, or a subreaper."""
        with contextlib.suppress(ChildProcessError):
            while os.waitid(os.P_PGID, self._leader, os.WEXITED | os.WNOHANG):
                pass
