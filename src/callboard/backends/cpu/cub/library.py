"""``CpuCub``: the modules whose plans serve the messages."""

from callboard.backends.cpu.library import CpuLibrary
from callboard.core.library import modules_of

__all__ = ["CpuCub"]


class CpuCub(CpuLibrary):
    """Serves :mod:`callboard.kernel.cub` with NumPy."""

    name = "cub"
    modules = modules_of(__name__)
