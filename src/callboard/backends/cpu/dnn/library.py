"""``CpuDnn``: the modules whose plans serve the messages."""

from callboard.backends.cpu.library import CpuLibrary
from callboard.core.library import modules_of

__all__ = ["CpuDnn"]


class CpuDnn(CpuLibrary):
    """Serves :mod:`callboard.kernel.dnn` with NumPy."""

    name = "dnn"
    max_plans = 1024
    modules = modules_of(__name__)
