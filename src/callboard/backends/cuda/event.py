"""``CudaEventLibrary``: events of callers on a GPU."""

from callboard.kernel.event.library import EventLibrary

__all__ = ["CudaEventLibrary"]


class CudaEventLibrary(EventLibrary):
    """Serves :mod:`callboard.kernel.event` with CUDA events."""
