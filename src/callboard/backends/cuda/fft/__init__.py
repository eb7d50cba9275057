"""Fourier transforms on a GPU, through cuFFT."""

from callboard.backends.cuda.fft.library import CudaFft

__all__ = ["CudaFft"]
