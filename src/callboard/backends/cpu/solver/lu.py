"""Plans of LU."""

from collections.abc import Callable

import numpy as np

from callboard.backends.cpu.solver.lapack import Array, check_finite, checker, lapack, name_of, outputs, staged, tag_of
from callboard.backends.cpu.solver.scaling import Equilibrated, centre, centre_columns, centre_factors, product, shift
from callboard.core.dtype import DType
from callboard.core.library import plans
from callboard.kernel.solver import Determinant, Inverse, Lu, LuSolve, Solve
from callboard.kernel.solver.failures import bad_indices, singular

__all__ = ["determinant", "getrf", "getrs", "inverse", "lu", "lu_solve", "rows_of_pivots", "solve"]

Plan = Callable[..., None]


def getrf(dtype: DType, a: Array) -> tuple[Array, int]:
    """Factor ``a`` in place; pivots as LAPACK has them (1-based), and ``info``."""
    m, n = a.shape
    pivots = np.zeros(min(m, n), np.int32)
    if not a.size:
        return pivots, 0
    exponent = centre(a)
    info = lapack(name_of(dtype, "getrf"), m, n, a, m, pivots)
    if exponent:
        rows, columns = np.triu_indices(m, 0, n)
        upper = a[rows, columns]
        shift(upper, -exponent)
        a[rows, columns] = upper
    return pivots, info


def getrs(dtype: DType, transpose: str, lu: Array, pivots: Array, b: Array) -> None:
    """Solve in place of ``b``."""
    n, columns = b.shape
    if b.size:
        exponent = centre_factors(lu)
        down = centre_columns(b) if exponent else 0  # so that the solutions are in the middle of the range, too
        lapack(name_of(dtype, "getrs"), transpose.upper(), n, columns, lu, n, pivots, b, n)
        if exponent:
            shift(b, exponent - down)


def rows_of_pivots(tag: str, pivots: Array, n: int) -> Array:
    """LAPACK's pivots from ours.

    Raises:
        NumericalError: One names no row.
    """
    bad = int(np.count_nonzero((pivots < 0) | (pivots >= n)))
    if bad:
        raise bad_indices(tag, bad, "pivots")
    return (pivots + 1).astype(np.int32)


def _nan_finder(op: Solve | Inverse | Determinant) -> Callable[[Array], bool]:
    """Return a function that tells whether a matrix has NaN; always False where NaN is refused.

    Not every LAPACK takes a NaN for a pivot: OpenBLAS finds a complex matrix with one singular.
    """
    return (lambda a: False) if op.check_finite else (lambda a: bool(np.isnan(a).any()))


@plans(Lu)
def lu(op: Lu) -> Plan:
    """Called with ``(a, lu, pivots)``."""
    dtype, tag, stage = op.a.dtype, tag_of(op), staged(op.a)
    view_lu, view_pivots = outputs(op, "lu", "pivots")

    def work(a: int, lu: int, pivots: int) -> None:
        factors = stage(a)
        check_finite(tag, factors)
        rows, info = getrf(dtype, factors)
        if info:
            raise singular(tag, info)
        view_lu(lu)[...] = factors
        view_pivots(pivots)[...] = rows - 1

    return work


@plans(LuSolve)
def lu_solve(op: LuSolve) -> Plan:
    """Called with ``(lu, pivots, b, x)``."""
    dtype, tag, n = op.lu.dtype, tag_of(op), op.lu.shape[0]
    stage_lu, stage_pivots, stage_b = staged(op.lu), staged(op.pivots), staged(op.b)
    (view_x,) = outputs(op, "x")
    transpose = op.transpose

    def work(lu: int, pivots: int, b: int, x: int) -> None:
        factors, right = stage_lu(lu), stage_b(b)
        check_finite(tag, factors, right)
        getrs(dtype, transpose, factors, rows_of_pivots(tag, stage_pivots(pivots).ravel(), n), right)
        out = view_x(x)
        out[...] = right.reshape(out.shape)

    return work


@plans(Solve)
def solve(op: Solve) -> Plan:
    """Called with ``(a, b, x)``."""
    dtype, tag, stage_a, stage_b = op.a.dtype, tag_of(op), staged(op.a), staged(op.b)
    (view_x,) = outputs(op, "x")
    check, has_nan = checker(op), _nan_finder(op)

    def work(a: int, b: int, x: int) -> None:
        factors, right = stage_a(a), stage_b(b)
        check(factors, right)
        if has_nan(factors):
            view_x(x)[...] = np.nan
            return
        scaled = Equilibrated(factors)
        rows, info = getrf(dtype, factors)
        if info:
            raise singular(tag, info)
        begun = scaled.begin(right)
        getrs(dtype, "n", factors, rows, right)
        scaled.finish(right, begun)
        out = view_x(x)
        out[...] = right.reshape(out.shape)

    return work


@plans(Inverse)
def inverse(op: Inverse) -> Plan:
    """Called with ``(a, out)``."""
    dtype, tag, stage, n = op.a.dtype, tag_of(op), staged(op.a), op.a.shape[0]
    (view_out,) = outputs(op, "out")
    check, has_nan = checker(op), _nan_finder(op)

    def work(a: int, out: int) -> None:
        factors = stage(a)
        check(factors)
        if has_nan(factors):
            view_out(out)[...] = np.nan
            return
        scaled = Equilibrated(factors)
        rows, info = getrf(dtype, factors)
        if info:
            raise singular(tag, info)
        right = np.eye(n, dtype=dtype.np, order="F")
        begun = scaled.begin(right)
        getrs(dtype, "n", factors, rows, right)
        scaled.finish(right, begun)
        view_out(out)[...] = right

    return work


@plans(Determinant)
def determinant(op: Determinant) -> Plan:
    """Called with ``(a, out)``."""
    dtype, stage = op.a.dtype, staged(op.a)
    (view_out,) = outputs(op, "out")
    check, has_nan = checker(op), _nan_finder(op)

    def work(a: int, out: int) -> None:
        factors = stage(a)
        check(factors)
        if has_nan(factors):
            view_out(out)[...] = np.nan
            return
        exponent = Equilibrated(factors).exponent
        rows, _ = getrf(dtype, factors)
        exchanges = int(np.count_nonzero(rows != np.arange(1, len(rows) + 1)))
        found = product(np.diagonal(factors), exponent)
        view_out(out)[...] = -found if exchanges % 2 else found

    return work
