"""Linear algebra on a GPU, through cuSOLVER, cuBLAS and cuDSS."""

from callboard.backends.cuda.solver.library import CudaSolver

__all__ = ["CudaSolver"]
