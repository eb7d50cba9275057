"""Deep learning on a GPU through cuDNN, and custom kernels for ops that cuDNN lacks."""

from callboard.backends.cuda.dnn.library import CudaDnn

__all__ = ["CudaDnn"]
