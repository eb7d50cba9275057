"""Tensors on a GPU: matrix products by cuBLAS, everything else by kernels of ours."""

from callboard.backends.cuda.tensor.library import CudaTensor

__all__ = ["CudaTensor"]
