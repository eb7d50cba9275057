"""Sparse matrices on CUDA: cuSPARSE, and kernels of ours."""

from callboard.backends.cuda.sparse.library import CudaSparse

__all__ = ["CudaSparse"]
