"""What this process has of its machine: memory, which the CPU devices of several backends share, cores, a folder."""

import math
import os
from pathlib import Path

__all__ = ["cache_folder", "cores", "memory", "workers"]

CGROUPS = Path("/sys/fs/cgroup")
"""Where a container sees its own control group."""


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


def cores() -> int:
    """The number of cores that this process may use.

    They are fewer than the machine has where it is bound to some, or its container has a quota (rounded up).
    """
    bound = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = _quota(CGROUPS)
    return bound if quota is None else max(1, min(bound, math.ceil(quota)))


def _quota(root: Path) -> float | None:
    """Cores' worth of time that the control group of a container gives; None: all of it."""
    try:
        allowed, period = (root / "cpu.max").read_text("ascii").split()  # of version 2
        return None if allowed == "max" else int(allowed) / int(period)
    except (OSError, ValueError, ZeroDivisionError):
        pass
    try:
        used = [int((root / "cpu" / f"cpu.cfs_{name}_us").read_text("ascii")) for name in ("quota", "period")]
        return used[0] / used[1] if used[0] > 0 else None
    except (OSError, ValueError, ZeroDivisionError):
        return None


def workers() -> int:
    """The number of threads that a computation may use: what ``OMP_NUM_THREADS`` allows, else one for each core."""
    said = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    return int(said) if said.isdecimal() and int(said) else cores()


def cache_folder() -> Path:
    """The folder for what can be fetched or computed again: ``$CALLBOARD_CACHE_DIR``, else the user's."""
    own = os.environ.get("CALLBOARD_CACHE_DIR")
    return Path(own) if own else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "callboard"
