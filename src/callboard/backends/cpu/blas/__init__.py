"""BLAS on the CPU: SciPy's own BLAS on the memory of the operands, NumPy for routines that BLAS lacks."""

from callboard.backends.cpu.blas.library import CpuBlas

__all__ = ["CpuBlas"]
