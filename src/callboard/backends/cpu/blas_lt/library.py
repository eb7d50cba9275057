"""``CpuBlasLt``: the modules whose plans serve the messages."""

from callboard.backends.cpu.library import CpuLibrary
from callboard.core.library import modules_of

__all__ = ["CpuBlasLt"]


class CpuBlasLt(CpuLibrary):
    """Serves :mod:`callboard.kernel.blas_lt` with NumPy. Settings that choose an algorithm have no effect here."""

    name = "blas_lt"
    max_plans = 1024
    modules = modules_of(__name__)
