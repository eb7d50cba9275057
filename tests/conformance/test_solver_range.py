"""Systems at the ends of a dtype's range, denormal numbers included: what can be represented is, and is right."""

from typing import Any

import numpy as np
import pytest
from solver_lab import FLOATS, Array, execute

from callboard.core.dtype import DTYPES, DType
from callboard.kernel.solver import GetrfBatched, GetrsBatched, Inverse, Lu, LuSolve, Solve

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
