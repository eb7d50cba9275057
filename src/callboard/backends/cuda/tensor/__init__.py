"""Tensors on a GPU: cuBLAS and custom kernels, or cuTENSOR where it is installed and faster."""

from callboard.backends.cuda.tensor.library import CudaTensor

__all__ = ["CudaTensor"]
