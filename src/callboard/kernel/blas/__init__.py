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

from callboard.kernel.blas.actor import BlasActor
from callboard.kernel.blas.banded import Gbmv
from callboard.kernel.blas.batched import GemmBatched, GemmGrouped, GemmStridedBatched
from callboard.kernel.blas.level1 import (
    Asum,
    Axpy,
    Copy,
    Dot,
    Dotc,
    Dotu,
    Iamax,
    Iamin,
    Nrm2,
    Rot,
    Scal,
    Swap,
    VectorPair,
)
from callboard.kernel.blas.level2 import Gemv, Ger, Gerc, Geru, Spr, Syr
from callboard.kernel.blas.level3 import Geam, Gemm, Hemm, Her2k, Herk, Symm, Syr2k, Syrk, Trmm, Trsm
from callboard.kernel.blas.symmetric import Hbmv, Hemv, Her, Her2, Hpmv, Hpr, Hpr2, Sbmv, Spmv, Spr2, Symv, Syr2
from callboard.kernel.blas.triangular import Tbmv, Tbsv, Tpmv, Tpsv, Trmv, Trsv

__all__ = [
    "Asum",
    "Axpy",
    "BlasActor",
    "Copy",
    "Dot",
    "Dotc",
    "Dotu",
    "Gbmv",
    "Geam",
    "Gemm",
    "GemmBatched",
    "GemmGrouped",
    "GemmStridedBatched",
    "Gemv",
    "Ger",
    "Gerc",
    "Geru",
    "Hbmv",
    "Hemm",
    "Hemv",
    "Her",
    "Her2",
    "Her2k",
    "Herk",
    "Hpmv",
    "Hpr",
    "Hpr2",
    "Iamax",
    "Iamin",
    "Nrm2",
    "Rot",
    "Sbmv",
    "Scal",
    "Spmv",
    "Spr",
    "Spr2",
    "Swap",
    "Symm",
    "Symv",
    "Syr",
    "Syr2",
    "Syr2k",
    "Syrk",
    "Tbmv",
    "Tbsv",
    "Tpmv",
    "Tpsv",
    "Trmm",
    "Trmv",
    "Trsm",
    "Trsv",
    "VectorPair",
]
