"""Sparse matrices on a GPU, through cuSPARSE and custom kernels."""

from callboard.backends.cuda.sparse.library import CudaSparse

__all__ = ["CudaSparse"]
