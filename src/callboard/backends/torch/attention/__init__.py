"""Attention by products and softmax of some queries at a time."""

from callboard.backends.torch.attention import fp8, paged, whole
from callboard.backends.torch.library import TorchLibrary

__all__ = ["TorchAttention"]


class TorchAttention(TorchLibrary):
    """Serves :mod:`callboard.kernel.attention`."""

    name = "attention"
    max_plans = 1024
    modules = (fp8, paged, whole)
