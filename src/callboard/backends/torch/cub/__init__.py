"""Parallel primitives by PyTorch."""

from collections.abc import Mapping
from typing import Any, ClassVar

from callboard.backends.torch.cub import reductions, selection, sorting
from callboard.backends.torch.library import TorchLibrary
from callboard.kernel import cub

__all__ = ["TorchCub"]


class TorchCub(TorchLibrary):
    """Serves :mod:`callboard.kernel.cub`."""

    name = "cub"
    modules = (reductions, selection, sorting)
    refused: ClassVar[Mapping[Any, str]] = {
        cub.MergeSort: "its comparison is a text in CUDA C++ or Python, and PyTorch takes neither"
    }
