"""Attention on CUDA: cuDNN for calls whose features it supports, custom kernels for the others."""

from callboard.backends.cuda.attention.library import CudaAttention

__all__ = ["CudaAttention"]
