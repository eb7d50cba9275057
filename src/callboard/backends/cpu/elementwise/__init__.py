"""Expressions on elements, on the CPU: NumPy, block by block."""

from callboard.backends.cpu.elementwise.library import CpuElementwise

__all__ = ["CpuElementwise"]
