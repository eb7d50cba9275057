"""Element-wise expressions and their reductions, one function of PyTorch a step."""

from callboard.backends.torch.elementwise import plans
from callboard.backends.torch.library import TorchLibrary

__all__ = ["TorchElementwise"]


class TorchElementwise(TorchLibrary):
    """Serves :mod:`callboard.kernel.elementwise`."""

    name = "elementwise"
    max_plans = 1024
    modules = (plans,)
