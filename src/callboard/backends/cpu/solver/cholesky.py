"""Plans of Cholesky."""

from collections.abc import Callable

import numpy as np

from callboard.backends.cpu.solver.lapack import Array, check_finite, lapack, name_of, outputs, staged, tag_of
from callboard.core.dtype import DType
from callboard.core.library import plans
from callboard.kernel.solver import Cholesky, CholeskyInverse, CholeskySolve
from callboard.kernel.solver.failures import indefinite

__all__ = ["cholesky", "cholesky_inverse", "cholesky_solve", "potrf", "potrs", "triangle"]

Plan = Callable[..., None]


def triangle(lower: bool) -> str:
    """LAPACK's letter."""
    return "L" if lower else "U"


def potrf(dtype: DType, lower: bool, a: Array) -> int:
    """Factor in place; the other triangle is left as it was. ``info``."""
    n = len(a)
    return lapack(name_of(dtype, "potrf"), triangle(lower), n, a, n) if n else 0


def potrs(dtype: DType, lower: bool, factor: Array, b: Array) -> None:
    """Solve in place of ``b``."""
    n, columns = b.shape
    if b.size:
        lapack(name_of(dtype, "potrs"), triangle(lower), n, columns, factor, n, b, n)


@plans(Cholesky)
def cholesky(op: Cholesky) -> Plan:
    """Called with ``(a, out)``."""
    dtype, tag, stage, lower = op.a.dtype, tag_of(op), staged(op.a), op.lower
    (view_out,) = outputs(op, "out")
    keep = np.tril if lower else np.triu

    def work(a: int, out: int) -> None:
        factor = stage(a)
        check_finite(tag, factor)
        info = potrf(dtype, lower, factor)
        if info:
            raise indefinite(tag, info)
        view_out(out)[...] = keep(factor)

    return work


@plans(CholeskySolve)
def cholesky_solve(op: CholeskySolve) -> Plan:
    """Called with ``(factor, b, x)``."""
    dtype, tag, stage_factor, stage_b, lower = op.factor.dtype, tag_of(op), staged(op.factor), staged(op.b), op.lower
    (view_x,) = outputs(op, "x")

    def work(factor: int, b: int, x: int) -> None:
        triangular, right = stage_factor(factor), stage_b(b)
        check_finite(tag, triangular, right)
        potrs(dtype, lower, triangular, right)
        out = view_x(x)
        out[...] = right.reshape(out.shape)

    return work


@plans(CholeskyInverse)
def cholesky_inverse(op: CholeskyInverse) -> Plan:
    """Called with ``(factor, out)``."""
    dtype, tag, stage, lower, n = op.factor.dtype, tag_of(op), staged(op.factor), op.lower, op.factor.shape[0]
    (view_out,) = outputs(op, "out")

    def work(factor: int, out: int) -> None:
        triangular = stage(factor)
        check_finite(tag, triangular)
        right = np.eye(n, dtype=dtype.np, order="F")
        potrs(dtype, lower, triangular, right)
        view_out(out)[...] = right

    return work
