"""BLAS on a GPU: the messages of :mod:`callboard.kernel.blas` as calls of cuBLAS."""

from callboard.backends.cuda.blas.library import CudaBlas

__all__ = ["CudaBlas"]
