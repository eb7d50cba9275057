"""Tensors on a GPU: matrix products by cuBLAS, everything else by custom kernels."""

from callboard.backends.cuda.tensor.library import CudaTensor

__all__ = ["CudaTensor"]
