"""Random numbers on the CPU, through NumPy."""

from callboard.backends.cpu.rng.library import CpuRng

__all__ = ["CpuRng"]
