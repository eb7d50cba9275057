"""Fourier transforms on a GPU, by cuFFT."""

from callboard.backends.cuda.fft.library import CudaFft

__all__ = ["CudaFft"]
