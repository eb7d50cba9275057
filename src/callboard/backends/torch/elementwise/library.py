"""``TorchElementwise``: the modules whose plans serve the messages."""

from callboard.backends.torch.library import TorchLibrary
from callboard.core.library import modules_of

__all__ = ["TorchElementwise"]


class TorchElementwise(TorchLibrary):
    """Serves :mod:`callboard.kernel.elementwise`."""

    name = "elementwise"
    max_plans = 1024
    modules = modules_of(__name__)
