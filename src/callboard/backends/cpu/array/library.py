"""``CpuArray``: the modules whose plans serve the messages."""

from callboard.backends.cpu.library import CpuLibrary
from callboard.core.library import modules_of

__all__ = ["CpuArray"]


class CpuArray(CpuLibrary):
    """Serves :mod:`callboard.kernel.array` with NumPy."""

    name = "array"
    implementation = "array"
    modules = modules_of(__name__)
