"""``CpuAttention``: the modules whose plans serve the messages."""

from callboard.backends.cpu.attention import backward, forward, fp8, merging, paged
from callboard.backends.cpu.library import CpuLibrary

__all__ = ["CpuAttention"]


class CpuAttention(CpuLibrary):
    """Serves :mod:`callboard.kernel.attention` with NumPy."""

    name = "attention"
    max_plans = 1024
    modules = (backward, forward, fp8, merging, paged)
