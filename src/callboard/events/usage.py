"""``usage``: memory, processor time and threads of a process, from Linux's ``/proc``."""

import functools
import os

__all__ = ["usage"]


@functools.cache
def _units() -> tuple[int, int]:
    return os.sysconf("SC_PAGE_SIZE"), os.sysconf("SC_CLK_TCK")


def usage(pid: int | None = None) -> tuple[int, float, int] | None:
    """Bytes in memory, seconds of processor time, and threads; None where that is not known.

    Args:
        pid: The process; None for this one.
    """
    try:
        with open(f"/proc/{pid or 'self'}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()  # the name before it may have spaces and parentheses
    except OSError:
        return None
    page, tick = _units()
    return int(fields[21]) * page, (int(fields[11]) + int(fields[12])) / tick, int(fields[17])
