"""BLAS operations of ``dev.blas``.

Arrays are row-major, as in NumPy. Shapes come from the operands, so no message carries ``m``, ``n``, ``lda`` or
``incx``; transposed and strided views are passed as they are. The operands of level 1 are vectors, those of level 2 a
matrix and vectors, and those of level 3 matrices.

Rules for a factor of 0, given as a number or as a 0-d array:

* ``beta`` 0: ``c`` is not read (``y`` of ``gemv`` and similar ops, ``b`` of ``geam``), so NaN and infinities there do
  not spread.
* ``alpha`` 0, or an inner extent of 0: the result is ``beta * c``, or the array that the product is added to; ``trmm``
  and ``trsm`` set ``b`` to 0. Do not use it to hide NaN or infinities in the factors of the product: on the CPU they do
  not spread, as in the reference BLAS; on CUDA they do in the routines of cuBLAS that multiply by 0 (measured with
  cuBLAS 13.1: ``symm``, ``syrk``, ``trsm`` and batches with any ``alpha``, ``gemm`` and ``gerc`` with one on the
  device).

These rules do not apply to ``scal``, see :class:`Scal`.
"""

from callboard.kernel.blas.actor import *
from callboard.kernel.blas.banded import *
from callboard.kernel.blas.batched import *
from callboard.kernel.blas.level1 import *
from callboard.kernel.blas.level2 import *
from callboard.kernel.blas.level3 import *
from callboard.kernel.blas.symmetric import *
from callboard.kernel.blas.triangular import *
from callboard.kernel.exports import export_all as _export_all

_export_all(__name__)
