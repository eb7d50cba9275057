"""CUTLASS on the CPU: products and epilogues, computed by NumPy."""

from callboard.backends.cpu.cutlass.library import CpuCutlass

__all__ = ["CpuCutlass"]
