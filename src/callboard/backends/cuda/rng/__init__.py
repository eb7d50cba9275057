"""Random numbers on a GPU: custom kernels, and cuRAND."""

from callboard.backends.cuda.rng.library import CudaRng

__all__ = ["CudaRng"]
