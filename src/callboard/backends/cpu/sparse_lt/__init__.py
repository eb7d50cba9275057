"""Structured sparsity on the CPU: NumPy, with the metadata format of ``mma.sp``."""

from callboard.backends.cpu.sparse_lt.library import CpuSparseLt

__all__ = ["CpuSparseLt"]
