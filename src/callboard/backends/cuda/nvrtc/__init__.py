"""Kernels of the user's own on a GPU."""

from callboard.backends.cuda.nvrtc.library import CudaNvrtc

__all__ = ["CudaNvrtc"]
