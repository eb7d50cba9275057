"""Tensors on the CPU: NumPy, with matrix products for contractions."""

from callboard.backends.cpu.tensor.library import CpuTensor

__all__ = ["CpuTensor"]
