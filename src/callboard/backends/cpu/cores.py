"""The number of threads the CPU backend may use for one op."""

import os

from callboard.core.backend.machine import cores

__all__ = ["workers"]


def workers() -> int:
    """The number of threads allowed by ``OMP_NUM_THREADS``, else one per core available to this process."""
    told = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    if told.isdigit() and int(told):
        return int(told)
    return cores()
