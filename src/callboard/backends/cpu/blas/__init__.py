"""BLAS on the CPU: SciPy's own BLAS on the memory of the operands, NumPy for what BLAS has not."""

from callboard.backends.cpu.blas.library import CpuBlas

__all__ = ["CpuBlas"]
