"""The array library on CUDA."""

from callboard.backends.cuda.array.library import CudaArray

__all__ = ["CudaArray"]
