"""BLAS-LT on a GPU through cuBLASLt."""

from callboard.backends.cuda.blas_lt.library import CudaBlasLt

__all__ = ["CudaBlasLt"]
