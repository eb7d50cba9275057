"""``CpuCutlass``: the modules whose plans serve the messages."""

from callboard.backends.cpu.library import CpuLibrary
from callboard.core.library import modules_of

__all__ = ["CpuCutlass"]


class CpuCutlass(CpuLibrary):
    """Serves :mod:`callboard.kernel.cutlass` with NumPy. The setting ``engine`` has no effect here."""

    name = "cutlass"
    max_plans = 1024
    modules = modules_of(__name__)
