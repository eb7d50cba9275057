"""Operations of ``dev.fft``: Fourier transforms.

Along any one to three axes of arrays of any strides; shapes, names and norms like NumPy's ``fft`` module. Single and
double precision, and half precision, for which there is no complex type: complex halves are f16 arrays whose last axis
holds real and imaginary part.
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
