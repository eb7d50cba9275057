"""BLAS-LT on the CPU: NumPy's products, and the epilogues as formulas."""

from callboard.backends.cpu.blas_lt.library import CpuBlasLt

__all__ = ["CpuBlasLt"]
