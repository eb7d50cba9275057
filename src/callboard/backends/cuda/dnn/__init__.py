"""Deep learning on a GPU through cuDNN, and custom kernels for missing ops."""

from callboard.backends.cuda.dnn.library import CudaDnn

__all__ = ["CudaDnn"]
