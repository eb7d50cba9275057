"""Deep learning on the CPU: NumPy, the reference."""

from callboard.backends.cpu.dnn.library import CpuDnn

__all__ = ["CpuDnn"]
