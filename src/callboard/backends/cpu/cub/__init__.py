"""Parallel primitives on the CPU, through NumPy."""

from callboard.backends.cpu.cub.library import CpuCub

__all__ = ["CpuCub"]
