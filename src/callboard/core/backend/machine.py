"""Memory of this machine, which the CPU devices of several backends share."""

import os

__all__ = ["memory"]


def memory() -> tuple[int, int]:
    """Free and total bytes of the machine, 0 if unknown.

    ``MemAvailable`` of ``/proc/meminfo``; on other systems the total from ``sysconf``, all of which counts as free.
    """
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            fields = dict(line.split(":", 1) for line in file)
        return _kib(fields["MemAvailable"]), _kib(fields["MemTotal"])
    except (OSError, KeyError):
        pass
    try:
        total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        total = 0
    return total, total


def _kib(text: str) -> int:
    return int(text.split(maxsplit=1)[0]) << 10
