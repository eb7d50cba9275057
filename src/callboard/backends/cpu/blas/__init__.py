"""BLAS on the CPU: SciPy's BLAS on the operands' memory, and NumPy for routines that BLAS lacks."""

from callboard.backends.cpu.blas.library import CpuBlas

__all__ = ["CpuBlas"]
