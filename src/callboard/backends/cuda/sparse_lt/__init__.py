"""Structured sparsity on a GPU through cuSPARSELt."""

from callboard.backends.cuda.sparse_lt.library import CudaSparseLt

__all__ = ["CudaSparseLt"]
