"""Symmetric and Hermitian matrices and vectors.

cuBLAS reads a row-major square as its transpose, which for a Hermitian matrix is the conjugate. Its level 2 routines do
not support that, but its level 3 routines do, so vectors are passed as matrices of one row.
"""

from typing import TYPE_CHECKING, Any

from callboard.backends.cuda.blas.level1 import vector_at
from callboard.backends.cuda.blas.level2 import matrix_at, triangle, with_addend
from callboard.backends.cuda.blas.products import PREFIX
from callboard.backends.cuda.blas.scalars import Factor, factor_of, pointers
from callboard.backends.cuda.plans import nothing
from callboard.core.library import plans
from callboard.kernel.blas import Hbmv, Hemv, Her, Her2, Hpmv, Hpr, Hpr2, Sbmv, Spmv, Spr2, Symv, Syr2
from callboard.kernel.blas.strides import Matrix, band_of
from callboard.kernel.blas.symmetric import HermitianRank1, SymmetricProduct, SymmetricRank2

if TYPE_CHECKING:
    from callboard.backends.cuda.blas.cublas import Cublas, Run

__all__ = ["product", "rank_1", "rank_2"]

RIGHT = 1
"""``cublasSideMode_t``."""
CONJUGATE = 2
"""``cublasOperation_t``."""


@plans(Hbmv, Hemv, Hpmv, Sbmv, Spmv, Symv, inline=True)
def product(cublas: "Cublas", op: SymmetricProduct) -> "Run":
    """``run(a, x, out, y, alpha, beta)``. A triangle packed by rows is the other one packed by columns.

    A Hermitian one is packed by columns.
    """
    dtype = op.a.dtype
    out = op.infer()["out"] if op.out is None else op.out.layout
    x_at, out_at = vector_at(op.x.layout), vector_at(out)
    n, item, handle = x_at.n, dtype.itemsize, cublas.handle
    if n == 0:
        return nothing
    hand = pointers(cublas, (factor_of(op.alpha, dtype), factor_of(op.beta, dtype)))
    incx, incy, dx, dy = x_at.inc, out_at.inc, x_at.first * item, out_at.first * item
    by_columns = op.storage == "banded" or op.hermitian
    form = matrix_at(op.a.layout) if op.storage == "square" else Matrix(n, n, n, by_columns)
    uplo = triangle(op.lower, form)
    if op.storage == "square" and op.hermitian and not form.transposed:
        ld = form.ld
        multiply = cublas.function(f"{PREFIX[dtype.name]}hemm", n, ld, incx, incy)

        def by_rows(a: int, x: int, out: int, alpha: Any, beta: Any) -> None:
            p_alpha, p_beta = hand(alpha, beta)
            multiply(handle, RIGHT, uplo, 1, n, p_alpha, a, ld, x, incx, p_beta, out, incy)

        return with_addend(cublas, by_rows, op.y, out, op.beta)
    lead = (op.a.shape[0] - 1,) if op.storage == "banded" else ()
    steps: tuple[int, ...] = () if op.storage == "packed" else (form.ld,)
    if op.storage == "banded":
        steps = (band_of(op.a.layout) or 1,)
    fn = cublas.function(f"{PREFIX[dtype.name]}{type(op).__name__.lower()}", n, *lead, *steps, incx, incy)

    def run(a: int, x: int, out: int, alpha: Any, beta: Any) -> None:
        p_alpha, p_beta = hand(alpha, beta)
        fn(handle, uplo, n, *lead, p_alpha, a, *steps, x + dx, incx, p_beta, out + dy, incy)

    return with_addend(cublas, run, op.y, out, op.beta)


@plans(Her, Hpr, inline=True)
def rank_1(cublas: "Cublas", op: HermitianRank1) -> "Run":
    """``run(x, a, alpha)``."""
    dtype, vector = op.a.dtype, vector_at(op.x.layout)
    n, inc, handle = vector.n, vector.inc, cublas.handle
    if n == 0:
        return nothing
    form = Matrix(n, n, n, True) if op.packed else matrix_at(op.a.layout)
    ld = form.ld
    uplo, dx = triangle(op.lower, form), vector.first * dtype.itemsize
    if not form.transposed:
        keep = _kept(cublas, op.alpha, dtype.real)
        hand = pointers(cublas, (factor_of(op.alpha, dtype.real), keep[0]))
        rank_k = cublas.function(f"{PREFIX[dtype.name]}herk", n, inc, ld)

        def by_rows(x: int, a: int, alpha: Any) -> None:
            p_alpha, p_beta = hand(alpha, keep[1])
            rank_k(handle, uplo, CONJUGATE, n, 1, p_alpha, x, inc, p_beta, a, ld)

        return by_rows
    hand = pointers(cublas, (factor_of(op.alpha, dtype.real),))
    steps = () if op.packed else (ld,)
    fn = cublas.function(f"{PREFIX[dtype.name]}{type(op).__name__.lower()}", n, inc, *steps)

    def run(x: int, a: int, alpha: Any) -> None:
        (p_alpha,) = hand(alpha)
        fn(handle, uplo, n, p_alpha, x + dx, inc, a, *steps)

    return run


def _kept(cublas: "Cublas", alpha: Any, dtype: Any) -> tuple[Factor, Any]:
    """A ``beta`` of 1 on the side where ``alpha`` is."""
    if factor_of(alpha, dtype).is_array:
        return Factor(dtype, is_array=True), cublas.one(dtype)
    return Factor(dtype, is_array=False), 1.0


@plans(Her2, Hpr2, Spr2, Syr2, inline=True)
def rank_2(cublas: "Cublas", op: SymmetricRank2) -> "Run":
    """``run(x, y, a, alpha)``."""
    dtype, first, second = op.a.dtype, vector_at(op.x.layout), vector_at(op.y.layout)
    n, incx, incy, handle = first.n, first.inc, second.inc, cublas.handle
    if n == 0:
        return nothing
    form = Matrix(n, n, n, op.hermitian) if op.packed else matrix_at(op.a.layout)
    uplo, item = triangle(op.lower, form), dtype.itemsize
    dx, dy = first.first * item, second.first * item
    if op.hermitian and not form.transposed:
        keep = _kept(cublas, op.alpha, dtype.real)
        hand = pointers(cublas, (factor_of(op.alpha, dtype), keep[0]))
        rank_2k, ld = cublas.function(f"{PREFIX[dtype.name]}her2k", n, incx, incy, form.ld), form.ld

        def by_rows(x: int, y: int, a: int, alpha: Any) -> None:
            p_alpha, p_beta = hand(alpha, keep[1])
            rank_2k(handle, uplo, CONJUGATE, n, 1, p_alpha, y, incy, x, incx, p_beta, a, ld)

        return by_rows
    steps = () if op.packed else (form.ld,)
    hand = pointers(cublas, (factor_of(op.alpha, dtype),))
    fn = cublas.function(f"{PREFIX[dtype.name]}{type(op).__name__.lower()}", n, incx, incy, *steps)

    def run(x: int, y: int, a: int, alpha: Any) -> None:
        (p_alpha,) = hand(alpha)
        fn(handle, uplo, n, p_alpha, x + dx, incx, y + dy, incy, a, *steps)

    return run
