"""The array library on the CPU."""

from callboard.backends.cpu.array.library import CpuArray

__all__ = ["CpuArray"]
