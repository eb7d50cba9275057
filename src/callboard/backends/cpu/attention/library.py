"""``CpuAttention``: the modules whose plans serve the messages."""

from callboard.backends.cpu.library import CpuLibrary
from callboard.core.library import modules_of

__all__ = ["CpuAttention"]


class CpuAttention(CpuLibrary):
    """Serves :mod:`callboard.kernel.attention` with NumPy."""

    name = "attention"
    max_plans = 1024
    modules = modules_of(__name__)
