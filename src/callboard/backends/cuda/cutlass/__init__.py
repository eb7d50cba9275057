"""CUTLASS on a GPU: its templates compiled by nvcc, and the vendor's products with generated epilogues."""

from callboard.backends.cuda.cutlass.library import CudaCutlass

__all__ = ["CudaCutlass"]
