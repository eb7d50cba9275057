"""Plans of triangular matrices and a vector."""

from collections.abc import Callable
from typing import Any

from callboard.backends.cpu.blas.level1 import strided
from callboard.backends.cpu.blas.level3 import triangle
from callboard.backends.cpu.blas.products import required
from callboard.backends.cpu.blas.routines import integer, letter, prefix, routine
from callboard.kernel.blas.strides import band_of
from callboard.kernel.blas.triangular import TriangularVector

__all__ = ["vector"]

Plan = Callable[..., None]


def vector(op: TriangularVector) -> Plan:
    """Called with ``(a, x)``. Packed by rows, a triangle is what BLAS has packed by columns as the other one."""
    x_at, call = strided(op.x.layout), routine(prefix(op.a.dtype) + type(op).__name__.lower())
    lead: tuple[Any, ...] = ()
    steps: tuple[Any, ...] = ()
    column_major = op.storage == "banded"
    if op.storage == "square":
        form = required(op.a.layout)
        steps, column_major = (integer(form.ld),), form.transposed
    elif op.storage == "banded":
        lead, steps = (integer(op.a.shape[0] - 1),), (integer(band_of(op.a.layout) or 1),)
    uplo = triangle(op.lower, column_major)
    flipped = op.transpose == column_major
    trans, diag = letter(("C" if op.conj else "T") if flipped else "N"), letter("U" if op.unit_diagonal else "N")

    def work(a: int, x: int) -> None:
        call(uplo, trans, diag, x_at.n, *lead, a, *steps, x + x_at.first, x_at.inc)

    return work
