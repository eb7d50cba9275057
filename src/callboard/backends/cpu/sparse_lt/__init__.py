"""Structured sparsity on the CPU: NumPy, and the metadata of ``mma.sp``."""

from callboard.backends.cpu.sparse_lt.library import CpuSparseLt

__all__ = ["CpuSparseLt"]
