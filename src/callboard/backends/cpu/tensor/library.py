"""``CpuTensor``: the modules whose plans serve the messages."""

from callboard.backends.cpu.library import CpuLibrary
from callboard.core.library import modules_of

__all__ = ["CpuTensor"]


class CpuTensor(CpuLibrary):
    """Serves :mod:`callboard.kernel.tensor` with NumPy; opt_einsum orders the products of a network.

    Deterministic: equal calls give equal bits, as far as the BLAS behind NumPy does with its number of threads.
    """

    name = "tensor"
    max_plans = 256
    implementation = "tensor"
    modules = modules_of(__name__)
