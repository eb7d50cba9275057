"""Random numbers with NumPy."""

from callboard.backends.cpu.rng.library import CpuRng

__all__ = ["CpuRng"]
