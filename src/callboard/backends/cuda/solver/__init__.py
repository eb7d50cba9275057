"""Linear algebra on a GPU, through cuSOLVER and cuBLAS."""

from callboard.backends.cuda.solver.library import CudaSolver

__all__ = ["CudaSolver"]
