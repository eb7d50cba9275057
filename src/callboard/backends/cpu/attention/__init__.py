"""Attention on the CPU: computed in blocks by NumPy; the reference implementation."""

from callboard.backends.cpu.attention.library import CpuAttention

__all__ = ["CpuAttention"]
