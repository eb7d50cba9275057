"""PyTorch's devices: CPUs, CUDA and ROCm, Apple Metal, Intel XPU; ``torch:cpu``, ``torch:cuda:0``, ``torch:mps``.

A library's message is a function of tensors (:mod:`callboard.backends.torch.library`). What PyTorch or a kind of device
lacks is refused by name (:mod:`callboard.backends.torch.vendor`), and never computed elsewhere.
"""

from callboard.backends.torch.backend import TorchBackend

__all__ = ["backend"]

backend = TorchBackend()
"""The object named by the entry point ``torch``."""
