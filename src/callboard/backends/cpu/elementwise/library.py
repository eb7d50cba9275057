"""``CpuElementwise``: the modules whose plans serve the messages."""

from callboard.backends.cpu.library import CpuLibrary
from callboard.core.library import modules_of

__all__ = ["CpuElementwise"]


class CpuElementwise(CpuLibrary):
    """Serves :mod:`callboard.kernel.elementwise` with NumPy, and SciPy for the special functions."""

    name = "elementwise"
    max_plans = 1024
    implementation = "elementwise"
    modules = modules_of(__name__)
