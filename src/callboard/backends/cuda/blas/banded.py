"""A banded matrix and a vector."""

from typing import TYPE_CHECKING, Any

from callboard.backends.cuda.blas.level1 import vector_at
from callboard.backends.cuda.blas.level2 import kernel_gemv, with_addend
from callboard.backends.cuda.blas.products import PREFIX, operation, scale_dtype
from callboard.backends.cuda.blas.scalars import factor_of, pointers
from callboard.backends.cuda.plans import nothing
from callboard.core.library import plans
from callboard.kernel.blas import Gbmv
from callboard.kernel.blas.strides import band_of

if TYPE_CHECKING:
    from callboard.backends.cuda.blas.cublas import Cublas, Run

__all__ = ["gbmv"]


@plans(Gbmv, inline=True)
def gbmv(cublas: "Cublas", op: Gbmv) -> "Run":
    """``run(a, x, out, y, alpha, beta)``; a custom kernel where ``x`` is empty, for which cuBLAS does nothing."""
    dtype = op.a.dtype
    out = op.infer()["out"] if op.out is None else op.out.layout
    width, n = op.a.shape
    rows = n if op.rows is None else op.rows
    if not out.size:
        return nothing
    if not op.x.size:
        scale = scale_dtype(dtype)
        return kernel_gemv(cublas, op, out, (factor_of(op.alpha, scale), factor_of(op.beta, scale)))
    x_at, out_at, item = vector_at(op.x.layout), vector_at(out), dtype.itemsize
    incx, incy, dx, dy = x_at.inc, out_at.inc, x_at.first * item, out_at.first * item
    ld, below, above = band_of(op.a.layout) or 1, op.below, width - 1 - op.below
    trans, handle = operation(op.transpose, op.conj, dtype), cublas.handle
    fn = cublas.function(f"{PREFIX[dtype.name]}gbmv", rows, n, ld, below, above, incx, incy)
    hand = pointers(cublas, (factor_of(op.alpha, dtype), factor_of(op.beta, dtype)))

    def run(a: int, x: int, out: int, alpha: Any, beta: Any) -> None:
        p_alpha, p_beta = hand(alpha, beta)
        fn(handle, trans, rows, n, below, above, p_alpha, a, ld, x + dx, incx, p_beta, out + dy, incy)

    return with_addend(cublas, run, op.y, out, op.beta)
