"""BLAS: what can be asked of ``dev.blas``.

Row-major like NumPy. Shapes come from the operands, so no message carries ``m``, ``n``, ``lda`` or ``incx``;
transposed and strided views are passed as they are. Level 1 has vectors, level 2 a matrix and vectors, level 3
matrices.
"""

from callboard.kernel.blas.actor import BlasActor
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
from callboard.kernel.blas.level2 import Gemv, Ger, Gerc, Geru
from callboard.kernel.blas.level3 import Geam, Gemm, Hemm, Herk, Symm, Syrk, Trmm, Trsm

__all__ = [
    "Asum",
    "Axpy",
    "BlasActor",
    "Copy",
    "Dot",
    "Dotc",
    "Dotu",
    "Geam",
    "Gemm",
    "GemmBatched",
    "GemmGrouped",
    "GemmStridedBatched",
    "Gemv",
    "Ger",
    "Gerc",
    "Geru",
    "Hemm",
    "Herk",
    "Iamax",
    "Iamin",
    "Nrm2",
    "Rot",
    "Scal",
    "Swap",
    "Symm",
    "Syrk",
    "Trmm",
    "Trsm",
    "VectorPair",
]
