"""Systems at the ends of a dtype's range, denormal numbers included: what can be represented is, and is right."""

from typing import Any

import numpy as np
import pytest
from solver_lab import FLOATS, Array, execute

from callboard.core.dtype import DTYPES, DType
from callboard.kernel.solver import (
    Cholesky,
    CholeskySolve,
    Determinant,
    GelsBatched,
    GetrfBatched,
    GetrsBatched,
    Inverse,
    LeastSquares,
    Lu,
    LuSolve,
    PotrfBatched,
    PotrsBatched,
    Qr,
    Solve,
    SvdValues,
    Syevd,
)

N = 7


def wide(array: Array) -> Array:
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)


def shifted(array: Array, exponents: Any) -> Array:
    """``array * 2.0**exponents``, in steps whose powers are numbers."""
    found = np.array(array)
    for part in (found.real, found.imag) if found.dtype.kind == "c" else (found,):
        np.ldexp(part, exponents, out=part)
    return found


def ends(dtype: DType) -> dict[str, int]:
    """Exponents by which a matrix of numbers near 1 comes to the ends of the range."""
    info = np.finfo(dtype.np)
    return {"denormal": info.minexp - 4, "least normal": info.minexp + 3, "most": info.maxexp - 8}


def systems(dtype: DType) -> tuple[Array, Array]:
    """A well-conditioned matrix whose elements keep all their digits when they become denormal, and two columns."""
    draw = np.random.default_rng(5)
    a = draw.integers(-8, 9, (N, N)) + 20 * np.eye(N)
    if dtype.is_complex:
        a = a + 1j * draw.integers(-8, 9, (N, N))
    b = draw.integers(-8, 9, (N, 2))
    return (a / 16).astype(dtype.np), (b / 16).astype(dtype.np)


def skip_cusolver(session: Any) -> None:
    """cuSOLVER takes denormal pivots for 0, and its matrices are not scaled yet (seen on an H200)."""
    if "cuda" in session.backend.name:
        pytest.xfail("denormal pivots count as 0 in cuSOLVER; the CUDA plans do not scale their matrices yet")


def check(found: Array, want: Array, dtype: DType) -> None:
    tolerance = 1e-4 if np.finfo(dtype.np).bits == 32 else 1e-12
    np.testing.assert_allclose(found, want, rtol=0, atol=tolerance * np.abs(want).max())


@pytest.mark.parametrize("where", ["denormal", "least normal", "most"])
@pytest.mark.parametrize("name", FLOATS)
def test_solutions(session: Any, name: str, where: str) -> None:
    skip_cusolver(session)
    dtype = DTYPES[name]
    a, b = systems(dtype)
    exponent = ends(dtype)[where]
    small, right = shifted(a, exponent), shifted(b, exponent)
    want = np.linalg.solve(wide(shifted(small, -exponent)), wide(shifted(right, -exponent)))
    check(session.get(execute(session, Solve(a=session.put(small), b=session.put(right)))), want, dtype)
    lu, pivots = execute(session, Lu(a=session.put(small)))
    check(session.get(execute(session, LuSolve(lu=lu, pivots=pivots, b=session.put(right)))), want, dtype)
    lu, pivots = execute(session, GetrfBatched(a=session.put(small[None])))
    x = execute(session, GetrsBatched(lu=lu, pivots=pivots, b=session.put(right[None])))
    check(session.get(x)[0], want, dtype)


@pytest.mark.parametrize("name", FLOATS)
def test_an_inverse_that_can_be_represented(session: Any, name: str) -> None:
    skip_cusolver(session)
    dtype = DTYPES[name]
    a, _ = systems(dtype)
    exponent = np.finfo(dtype.np).minexp + 4
    found = session.get(execute(session, Inverse(a=session.put(shifted(a, exponent)))))
    check(shifted(found, exponent), np.linalg.inv(wide(a)), dtype)


@pytest.mark.parametrize("name", FLOATS)
def test_rows_of_different_sizes(session: Any, name: str) -> None:
    """Equations of different units: some rows are denormal, others large."""
    skip_cusolver(session)
    dtype = DTYPES[name]
    a, b = systems(dtype)
    info = np.finfo(dtype.np)
    rows = np.linspace(info.minexp - 3, info.maxexp - 8, N).astype(int)[:, None]
    small, right = shifted(a, rows), shifted(b, rows)
    want = np.linalg.solve(wide(shifted(small, -rows)), wide(shifted(right, -rows)))
    check(session.get(execute(session, Solve(a=session.put(small), b=session.put(right)))), want, dtype)


@pytest.mark.parametrize("gap", ["half", "whole"])
@pytest.mark.parametrize("name", FLOATS)
def test_rows_whose_quotients_leave_the_range(session: Any, name: str, gap: str) -> None:
    """Every element is an ordinary number, or every other row is denormal."""
    dtype = DTYPES[name]
    a, b = systems(dtype)
    info = np.finfo(dtype.np)
    far = info.maxexp // 2 + 10 if gap == "half" else info.maxexp - 8
    rows = np.where(np.arange(N) % 2, far, -far)[:, None]
    uneven = session.put(shifted(a, rows))
    want = np.linalg.solve(wide(a), wide(b))
    check(session.get(execute(session, Solve(a=uneven, b=session.put(shifted(b, rows))))), want, dtype)
    found = session.get(execute(session, Solve(a=session.put(shifted(a, rows.T)), b=session.put(b))))
    check(shifted(wide(found), rows), want, dtype)
    # The exponents of the rows add up to -far; a power more makes the determinant a number of the dtype.
    top = session.put(shifted(a, np.where(np.arange(N) == 0, 0, rows[:, 0])[:, None]))
    found = session.get(execute(session, Determinant(a=top)))
    check(found, np.linalg.det(wide(a)), dtype)


@pytest.mark.parametrize("name", FLOATS)
def test_determinants_of_large_and_small_factors(session: Any, name: str) -> None:
    dtype = DTYPES[name]
    info = np.finfo(dtype.np)
    for order in (4, 300):
        exponents = np.where(np.arange(order) < order // 2, info.maxexp - 8, 8 - info.maxexp)
        a = np.diag(shifted(np.full(order, 1.25, dtype.np), exponents))
        a[0, 0] /= dtype.np.type(1.25) ** order
        found = session.get(execute(session, Determinant(a=session.put(a))))
        np.testing.assert_allclose(found, 1, rtol=1e-3 if info.bits == 32 else 1e-10)


@pytest.mark.parametrize("where", ["denormal", "least normal", "most"])
@pytest.mark.parametrize("name", FLOATS)
def test_least_squares(session: Any, name: str, where: str) -> None:
    dtype = DTYPES[name]
    a, b = systems(dtype)
    exponent = ends(dtype)[where]
    for rows, columns in ((N, 4), (4, N), (N, N)):
        part = np.ascontiguousarray(a[:rows, :columns])
        small, right = (session.put(shifted(x, exponent)) for x in (part, b[:rows]))
        want = np.linalg.lstsq(wide(part), wide(b[:rows]), rcond=None)[0]
        check(session.get(execute(session, LeastSquares(a=small, b=right))), want, dtype)
        if rows >= columns:
            x = execute(session, GelsBatched(a=small[None], b=right[None]))
            check(session.get(x)[0], want, dtype)


@pytest.mark.parametrize("where", ["denormal", "least normal", "most"])
@pytest.mark.parametrize("name", FLOATS)
def test_factors_and_values(session: Any, name: str, where: str) -> None:
    dtype = DTYPES[name]
    a, b = systems(dtype)
    exponent = ends(dtype)[where] // 2 * 2
    ref = session.put(shifted(a, exponent))
    q, r = (session.get(x) for x in execute(session, Qr(a=ref)))
    check(wide(q) @ shifted(wide(r), -exponent), wide(a), dtype)
    found = session.get(execute(session, SvdValues(a=ref)))
    check(shifted(wide(found), -exponent), np.linalg.svd(wide(a), compute_uv=False), dtype)
    hermitian = ((a + a.conj().T) / 2 + 4 * np.eye(N)).astype(dtype.np)
    w, v = (session.get(x) for x in execute(session, Syevd(a=session.put(shifted(hermitian, exponent)))))
    check(shifted(wide(w), -exponent), np.linalg.eigvalsh(wide(hermitian)), dtype)
    check(wide(v) * shifted(wide(w), -exponent) @ wide(v).conj().T, wide(hermitian), dtype)
    small, right = session.put(shifted(hermitian, exponent)), session.put(shifted(b, exponent))
    want, x = np.linalg.cholesky(wide(hermitian)), np.linalg.solve(wide(hermitian), wide(b))
    factor = execute(session, Cholesky(a=small))
    check(shifted(wide(session.get(factor)), -exponent // 2), want, dtype)
    check(session.get(execute(session, CholeskySolve(factor=factor, b=right))), x, dtype)
    factors = execute(session, PotrfBatched(a=small[None]))
    check(session.get(execute(session, PotrsBatched(factor=factors, b=right[None])))[0], x, dtype)
