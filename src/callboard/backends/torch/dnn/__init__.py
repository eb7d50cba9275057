"""Deep learning by PyTorch's convolutions and by the formulas of the messages."""

from collections.abc import Mapping
from typing import Any, ClassVar

from callboard.backends.torch.dnn import elements, graphs, images, norms
from callboard.backends.torch.library import TorchLibrary
from callboard.kernel import dnn

__all__ = ["TorchDnn"]

_NO_RNN = "PyTorch's recurrent networks have other weights and keep no reserve"
_RNN = (dnn.RnnForward, dnn.RnnForwardTraining, dnn.RnnBackward)


class TorchDnn(TorchLibrary):
    """Serves :mod:`callboard.kernel.dnn`."""

    name = "dnn"
    modules = (elements, graphs, images, norms)
    refused: ClassVar[Mapping[Any, str]] = dict.fromkeys(_RNN, _NO_RNN)
