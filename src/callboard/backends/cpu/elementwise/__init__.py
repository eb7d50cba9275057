"""Element-wise expressions on the CPU, through NumPy, in blocks."""

from callboard.backends.cpu.elementwise.library import CpuElementwise

__all__ = ["CpuElementwise"]
