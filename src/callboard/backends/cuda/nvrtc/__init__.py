"""User kernels on a GPU, compiled by NVRTC."""

from callboard.backends.cuda.nvrtc.library import CudaNvrtc

__all__ = ["CudaNvrtc"]
