"""Plans of triangular matrices and a vector."""

from collections.abc import Callable
from typing import Any, NamedTuple

from callboard.backends.cpu.blas.level1 import strided
from callboard.backends.cpu.blas.level3 import triangle
from callboard.backends.cpu.blas.products import required
from callboard.backends.cpu.blas.routines import integer, letter, prefix, routine
from callboard.core.library import plans
from callboard.kernel.blas import Tbmv, Tbsv, Tpmv, Tpsv, Trmv, Trsv
from callboard.kernel.blas.strides import band_of
from callboard.kernel.blas.symmetric import SymmetricProduct
from callboard.kernel.blas.triangular import TriangularVector

__all__ = ["Stored", "stored", "vector"]

Plan = Callable[..., None]


class Stored(NamedTuple):
    """A square matrix as BLAS addresses it.

    Attributes:
        lead: Arguments in front of the matrix: the diagonals of a band beside the main one.
        steps: Arguments after it: its leading dimension, none of a packed one.
        column_major: A packed one is packed by rows.
    """

    lead: tuple[Any, ...]
    steps: tuple[Any, ...]
    column_major: bool


def stored(op: TriangularVector | SymmetricProduct) -> Stored:
    """For the matrix of an op."""
    if op.storage == "square":
        form = required(op.a.layout)
        return Stored((), (integer(form.ld),), form.transposed)
    if op.storage == "banded":
        return Stored((integer(op.a.shape[0] - 1),), (integer(band_of(op.a.layout) or 1),), True)
    return Stored((), (), False)


@plans(Tbmv, Tbsv, Tpmv, Tpsv, Trmv, Trsv)
def vector(op: TriangularVector) -> Plan:
    """Called with ``(a, x)``. Packed by rows, a triangle is what BLAS has packed by columns as the other one."""
    x_at, call = strided(op.x.layout), routine(prefix(op.a.dtype) + type(op).__name__.lower())
    lead, steps, column_major = stored(op)
    uplo = triangle(op.lower, column_major)
    flipped = op.transpose == column_major
    trans, diag = letter(("C" if op.conj else "T") if flipped else "N"), letter("U" if op.unit_diagonal else "N")

    def work(a: int, x: int) -> None:
        call(uplo, trans, diag, x_at.n, *lead, a, *steps, x + x_at.first, x_at.inc)

    return work
