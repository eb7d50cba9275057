"""BLAS by PyTorch's products, and its triangular solve."""

from callboard.backends.torch.blas.library import TorchBlas

__all__ = ["TorchBlas"]
