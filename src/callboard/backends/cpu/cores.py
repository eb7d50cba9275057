"""How many threads the CPU backend may use for one op."""

import os

__all__ = ["workers"]


def workers() -> int:
    """Those that ``OMP_NUM_THREADS`` allows, else one for each core that this process may use."""
    told = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    if told.isdigit() and int(told):
        return int(told)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
