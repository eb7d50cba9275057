"""``TorchCub``: the modules whose plans serve the messages."""

from callboard.backends.torch.library import TorchLibrary
from callboard.core.library import modules_of

__all__ = ["TorchCub"]


class TorchCub(TorchLibrary):
    """Serves :mod:`callboard.kernel.cub`."""

    name = "cub"
    modules = modules_of(__name__)
