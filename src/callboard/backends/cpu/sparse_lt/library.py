"""``CpuSparseLt``: the modules whose plans serve the messages."""

from callboard.backends.cpu.library import CpuLibrary
from callboard.core.library import modules_of

__all__ = ["CpuSparseLt"]


class CpuSparseLt(CpuLibrary):
    """Serves :mod:`callboard.kernel.sparse_lt` with NumPy, which multiplies the zeros, too."""

    name = "sparse_lt"
    max_plans = 1024
    modules = modules_of(__name__)
