"""Random numbers on a GPU: kernels of our own, and cuRAND."""

from callboard.backends.cuda.rng.library import CudaRng

__all__ = ["CudaRng"]
