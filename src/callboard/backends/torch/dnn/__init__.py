"""Deep learning by PyTorch's convolutions and by the formulas of the messages."""

from callboard.backends.torch.dnn import elements, graphs, images, norms
from callboard.backends.torch.library import TorchLibrary
from callboard.kernel import dnn

__all__ = ["TorchDnn"]

_NO_RNN = "PyTorch's recurrent networks have other weights and keep no reserve"


class TorchDnn(TorchLibrary):
    """Serves :mod:`callboard.kernel.dnn`."""

    name = "dnn"
    modules = (elements, graphs, images, norms)
    refused = dict.fromkeys((dnn.RnnForward, dnn.RnnForwardTraining, dnn.RnnBackward), _NO_RNN)
