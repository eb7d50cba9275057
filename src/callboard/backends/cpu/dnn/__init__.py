"""Deep learning on the CPU, through NumPy; the reference implementation."""

from callboard.backends.cpu.dnn.library import CpuDnn

__all__ = ["CpuDnn"]
