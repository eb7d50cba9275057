"""Whether a process that sends no heartbeat does something."""

import contextlib
import os
from collections.abc import Collection

__all__ = ["Activity"]

WORKS = b"RD"
"""States of a thread that runs, or waits for a processor, a disk or a driver."""

LEAST = 1e-3
"""Seconds of processor time: threads that only wait, as those of a driver may, wake up now and then."""

TICK = 1 / (os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100)
"""Seconds of a tick in ``/proc``; on Windows, where there is none, any."""


class Activity:
    """Observes the threads of a process, by what the kernel tells of them.

    A long step may keep the GIL (an import that loads large libraries, the build of an engine), and then no Python
    thread of the process sends heartbeats. Neither the state of the process nor its processor time shows whether the
    step goes on: the threads that wait for the GIL wake up many times per second. So these are left out, as far as the
    last heartbeat named them, and the others are observed: the one in the step, and those of native libraries.

    Args:
        pid: The process.

    Attributes:
        idle: Native ids of the threads that are left out.
    """

    def __init__(self, pid: int) -> None:
        self.idle: Collection[int] = ()
        self._threads = f"/proc/{pid}/task"
        self._ran: dict[str, float] = {}  # by thread, at the last call

    def goes_on(self) -> bool:
        """True if a thread runs, waits for a disk or driver, or has run for :data:`LEAST` since the last call."""
        before, self._ran, works = self._ran, {}, False
        with contextlib.suppress(OSError):  # the process has ended
            for thread in os.listdir(self._threads):
                if int(thread) not in self.idle:
                    state, self._ran[thread] = self._look(thread)
                    works = works or state in WORKS
        return works or sum(ran - before.get(thread, 0.0) for thread, ran in self._ran.items()) >= LEAST

    def _look(self, thread: str) -> tuple[bytes, float]:
        """The state of a thread, and the seconds for which it has run."""
        fields = _read(f"{self._threads}/{thread}/stat").rpartition(b")")[2].split()  # behind "pid (name)"
        if not fields:
            return b"Z", 0.0  # it has ended
        ran = _read(f"{self._threads}/{thread}/schedstat").split()  # empty if the kernel keeps none
        return fields[0], int(ran[0]) * 1e-9 if ran else (int(fields[11]) + int(fields[12])) * TICK


def _read(path: str) -> bytes:
    with contextlib.suppress(OSError), open(path, "rb") as file:
        return file.read()
    return b""
