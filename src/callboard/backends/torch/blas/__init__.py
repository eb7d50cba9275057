"""BLAS by PyTorch's products, and its triangular solve."""

from callboard.backends.torch.blas import level1, level2, level3
from callboard.backends.torch.library import TorchLibrary

__all__ = ["TorchBlas"]


class TorchBlas(TorchLibrary):
    """Serves :mod:`callboard.kernel.blas`."""

    name = "blas"
    modules = (level1, level2, level3)
