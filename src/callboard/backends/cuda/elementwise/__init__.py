"""Element-wise expressions on a GPU: one generated kernel per expression, compiled by NVRTC."""

from callboard.backends.cuda.elementwise.library import CudaElementwise

__all__ = ["CudaElementwise"]
