"""Attention on CUDA: cuDNN if it has the features of a call, our own kernels for all others."""

from callboard.backends.cuda.attention.library import CudaAttention

__all__ = ["CudaAttention"]
