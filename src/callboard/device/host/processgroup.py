"""The processes of a group, and a program that ends its own group when another process has ended.

The program is run by path, so this imports only what every Python has, and starts in little time.
"""

import contextlib
import os
import select
import signal
import sys
import time

__all__ = ["GRACE", "PAUSES", "runs"]

GRACE = 0.5
"""Seconds between SIGTERM and SIGKILL, and then those that a killed process gets to go."""
PAUSES = (0.002, 0.1)
"""Seconds between two polls, the first and the most: no event tells of the end of a process that is no child."""


def runs(group: int, but: int = 0) -> bool:
    """Whether a process of the group runs, ``but`` excepted; one that has ended and was not waited for does not."""
    return any(_group_of(pid) == group for pid in os.listdir("/proc") if pid.isdigit() and int(pid) != but)


def _group_of(pid: str) -> int | None:
    """The group of a process; None if it has ended."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/stat", "rb") as stat:
        state, _, group, *_ = stat.read().rpartition(b")")[2].split(None, 3)  # behind "pid (name)"
        return None if state in b"ZX" else int(group)
    return None


def main() -> None:
    """Wait, as no child of the process that started this, for the end of a process; then end all of this one's group.

    The one argument is a pidfd of that process, inherited. The exit code is 0 as soon as another process waits.
    """
    if os.fork():
        os._exit(0)
    poll = select.poll()
    poll.register(int(sys.argv[1]), select.POLLIN)
    poll.poll()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    group, until, pause = os.getpgrp(), time.monotonic() + GRACE, PAUSES[0]
    os.killpg(group, signal.SIGTERM)
    while runs(group, but=os.getpid()):
        if time.monotonic() >= until:
            os.killpg(group, signal.SIGKILL)  # this process too
        time.sleep(pause)
        pause = min(2 * pause, PAUSES[1])


if __name__ == "__main__":
    main()
