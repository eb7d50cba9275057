"""Element-wise expressions and their reductions, one function of PyTorch a step."""

from callboard.backends.torch.elementwise.library import TorchElementwise

__all__ = ["TorchElementwise"]
