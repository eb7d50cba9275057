"""Operations of ``dev.fft``: Fourier transforms.

Transforms run along any one to three axes of arrays of any strides. Shapes, names and norms are those of NumPy's
``fft`` module. Precisions are single, double and half. There is no complex type of half precision: complex halves are
f16 arrays whose last axis holds real and imaginary part.
"""

from callboard.kernel.fft.actor import FftActor
from callboard.kernel.fft.callback import FftWithCallback
from callboard.kernel.fft.many import FftPlanMany, FftPlanManyInPlace
from callboard.kernel.fft.numpylike import Fft, Irfft, IrfftOverwrite, Rfft
from callboard.kernel.fft.transform import FftDirection, FftKind, FftNorm

__all__ = [
    "Fft",
    "FftActor",
    "FftDirection",
    "FftKind",
    "FftNorm",
    "FftPlanMany",
    "FftPlanManyInPlace",
    "FftWithCallback",
    "Irfft",
    "IrfftOverwrite",
    "Rfft",
]
