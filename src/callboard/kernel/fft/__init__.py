"""Operations of ``dev.fft``: Fourier transforms.

Transforms run along any one to three axes of arrays of any strides. Shapes, names and norms are those of NumPy's
``fft`` module. Precisions are single, double and half. There is no complex type of half precision: complex halves are
f16 arrays whose last axis holds real and imaginary part.
"""

from callboard.kernel.exports import export_all as _export_all
from callboard.kernel.fft.actor import *
from callboard.kernel.fft.callback import *
from callboard.kernel.fft.many import *
from callboard.kernel.fft.numpylike import *
from callboard.kernel.fft.transform import FftDirection as FftDirection
from callboard.kernel.fft.transform import FftKind as FftKind
from callboard.kernel.fft.transform import FftNorm as FftNorm

_export_all(__name__)
