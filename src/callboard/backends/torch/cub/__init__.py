"""Parallel primitives by PyTorch."""

from callboard.backends.torch.cub.library import TorchCub

__all__ = ["TorchCub"]
