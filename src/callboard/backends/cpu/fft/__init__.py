"""Fourier transforms on a CPU, by SciPy's pocketfft."""

from callboard.backends.cpu.fft.library import CpuFft

__all__ = ["CpuFft"]
