"""Sparse matrices: their formats as struct operands, products and conversions (``SparseActor``)."""

from callboard.kernel.sparse.actor import SparseActor
from callboard.kernel.sparse.conversions import Check, Convert, FromDense, ToDense, Transpose
from callboard.kernel.sparse.formats import AnyRef, BlockedEllRef, BsrRef, CooRef, CscRef, CsrRef, SparseRef
from callboard.kernel.sparse.ordering import Sort
from callboard.kernel.sparse.products import SpGemm, SpMm, SpMv
from callboard.kernel.sparse.sampled import Sddmm
from callboard.kernel.sparse.triangular import SpSm, SpSv

__all__ = [
    "AnyRef",
    "BlockedEllRef",
    "BsrRef",
    "Check",
    "Convert",
    "CooRef",
    "CscRef",
    "CsrRef",
    "FromDense",
    "Sddmm",
    "Sort",
    "SpGemm",
    "SpMm",
    "SpMv",
    "SpSm",
    "SpSv",
    "SparseActor",
    "SparseRef",
    "ToDense",
    "Transpose",
]
