"""Sparse matrices on the CPU, through SciPy."""

from callboard.backends.cpu.sparse.library import CpuSparse

__all__ = ["CpuSparse"]
