"""``CpuEventLibrary``: events of callers on the CPU."""

from callboard.kernel.event.library import EventLibrary

__all__ = ["CpuEventLibrary"]


class CpuEventLibrary(EventLibrary):
    """Serves :mod:`callboard.kernel.event` with points in the queues of worker threads."""
