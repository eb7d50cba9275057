"""``CpuCub``: the modules whose plans serve the messages."""

from callboard.backends.cpu.cub import histograms, reductions, selection, sorting
from callboard.backends.cpu.library import CpuLibrary

__all__ = ["CpuCub"]


class CpuCub(CpuLibrary):
    """Serves :mod:`callboard.kernel.cub` with NumPy."""

    name = "cub"
    modules = (histograms, reductions, selection, sorting)
