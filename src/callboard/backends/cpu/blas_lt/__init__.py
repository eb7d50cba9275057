"""BLAS-LT on the CPU: matrix products and epilogues, computed by NumPy."""

from callboard.backends.cpu.blas_lt.library import CpuBlasLt

__all__ = ["CpuBlasLt"]
