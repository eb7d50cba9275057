"""Fourier transforms on the CPU, through SciPy's pocketfft."""

from callboard.backends.cpu.fft.library import CpuFft

__all__ = ["CpuFft"]
