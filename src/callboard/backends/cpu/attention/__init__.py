"""Attention on the CPU: blockwise in NumPy, the reference."""

from callboard.backends.cpu.attention.library import CpuAttention

__all__ = ["CpuAttention"]
