"""Triangular matrices and a vector."""

from typing import TYPE_CHECKING

from callboard.backends.cuda.blas.level1 import vector_at
from callboard.backends.cuda.blas.level2 import matrix_at, triangle
from callboard.backends.cuda.blas.products import PREFIX, operation
from callboard.backends.cuda.plans import nothing
from callboard.core.library import plans
from callboard.kernel.blas import Tbmv, Tbsv, Tpmv, Tpsv, Trmv, Trsv
from callboard.kernel.blas.strides import Matrix, band_of
from callboard.kernel.blas.triangular import TriangularVector

if TYPE_CHECKING:
    from callboard.backends.cuda.blas.cublas import Cublas, Run

__all__ = ["vector"]

NON_UNIT, UNIT = 0, 1
"""``cublasDiagType_t``."""


@plans(Tbmv, Tbsv, Tpmv, Tpsv, Trmv, Trsv, inline=True)
def vector(cublas: "Cublas", op: TriangularVector) -> "Run":
    """``run(a, x)``. Packed by rows, a triangle is what cuBLAS has packed by columns as the other one."""
    dtype, at = op.a.dtype, vector_at(op.x.layout)
    n, inc, dx, handle = at.n, at.inc, at.first * dtype.itemsize, cublas.handle
    if n == 0:
        return nothing
    form = Matrix(n, n, n, op.storage == "banded") if op.storage != "square" else matrix_at(op.a.layout)
    lead: tuple[int, ...] = (op.a.shape[0] - 1,) if op.storage == "banded" else ()
    steps: tuple[int, ...] = () if op.storage == "packed" else (form.ld,)
    if op.storage == "banded":
        steps = (band_of(op.a.layout) or 1,)
    uplo, trans = triangle(op.lower, form), operation(op.transpose == form.transposed, op.conj, dtype)
    diagonal = UNIT if op.unit_diagonal else NON_UNIT
    fn = cublas.function(f"{PREFIX[dtype.name]}{type(op).__name__.lower()}", n, *lead, *steps, inc)

    def run(a: int, x: int) -> None:
        fn(handle, uplo, trans, diagonal, n, *lead, a, *steps, x + dx, inc)

    return run
