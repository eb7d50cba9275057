"""Precompiled user kernels on a GPU."""

from callboard.backends.cuda.module.library import CudaModule

__all__ = ["CudaModule"]
