"""Expressions on elements, on a GPU: one generated kernel each, compiled by NVRTC."""

from callboard.backends.cuda.elementwise.library import CudaElementwise

__all__ = ["CudaElementwise"]
