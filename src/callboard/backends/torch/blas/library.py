"""``TorchBlas``: the modules whose plans serve the messages."""

from callboard.backends.torch.library import TorchLibrary
from callboard.core.library import modules_of

__all__ = ["TorchBlas"]


class TorchBlas(TorchLibrary):
    """Serves :mod:`callboard.kernel.blas`."""

    name = "blas"
    modules = modules_of(__name__)
