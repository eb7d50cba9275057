"""``CpuElementwise``: the modules whose plans serve the messages."""

from callboard.backends.cpu.elementwise import mapping, reducing
from callboard.backends.cpu.library import CpuLibrary

__all__ = ["CpuElementwise"]


class CpuElementwise(CpuLibrary):
    """Serves :mod:`callboard.kernel.elementwise` with NumPy, and SciPy for the special functions."""

    name = "elementwise"
    max_plans = 1024
    implementation = "elementwise"
    modules = (mapping, reducing)
