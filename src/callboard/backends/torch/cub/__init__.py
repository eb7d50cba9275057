"""Parallel primitives by PyTorch."""

from callboard.backends.torch.cub import reductions, selection, sorting
from callboard.backends.torch.library import TorchLibrary

__all__ = ["TorchCub"]


class TorchCub(TorchLibrary):
    """Serves :mod:`callboard.kernel.cub`."""

    name = "cub"
    modules = (reductions, selection, sorting)
