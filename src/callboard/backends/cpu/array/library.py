"""``CpuArray``: the modules whose plans serve the messages."""

from callboard.backends.cpu.array import indexing, movement
from callboard.backends.cpu.library import CpuLibrary

__all__ = ["CpuArray"]


class CpuArray(CpuLibrary):
    """Serves :mod:`callboard.kernel.array` with NumPy."""

    name = "array"
    implementation = "array"
    modules = (indexing, movement)
