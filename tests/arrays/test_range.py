"""Linear algebra and statistics of numbers whose squares or reciprocals leave the range of their dtype."""

from typing import Any

import numpy as np
import pytest

import callboard as cb

Array = np.ndarray[Any, Any]
DTYPES = ("f4", "f8", "c8", "c16")
N = 5


def shifted(a: Any, exponents: Any) -> Array:
    """``a * 2.0**exponents``, in f64 or c128 if ``a`` is not larger."""
    found = np.array(a)
    found = found.astype(np.result_type(found, np.float64))
    for part in (found.real, found.imag) if found.dtype.kind == "c" else (found,):
        np.ldexp(part, exponents, out=part)
    return found


def matrix(dtype: str) -> Array:
    """Well-conditioned, and its elements keep all digits when they become denormal."""
    draw = np.random.default_rng(4)
    a = draw.integers(1, 9, (N, N)) * draw.choice([-1, 1], (N, N)) + 24.0 * np.eye(N)
    return (a + 1j * draw.integers(-8, 9, (N, N)) if dtype.startswith("c") else a) / 16


def far(dtype: str) -> list[int]:
    """Exponents of the ends of the range, and of where squares leave it."""
    info = np.finfo(dtype)
    return [info.minexp - 4, info.minexp // 2 - 20, info.maxexp // 2 + 20, info.maxexp - 8]


def check(found: Any, exponent: Any, want: Any, dtype: str) -> None:
    want = np.asarray(want)
    tolerance = 2e-4 if np.finfo(dtype).bits == 32 else 1e-11
    np.testing.assert_allclose(shifted(found.get(), -exponent), want, rtol=0, atol=tolerance * np.abs(want).max())


@pytest.mark.parametrize("dtype", DTYPES)
def test_norms(session: cb.sync.Device, dtype: str) -> None:
    linalg, a = session.xp.linalg, matrix(dtype)
    for exponent in far(dtype):
        x = session.put(shifted(a, exponent).astype(dtype))
        for order in (1, 2, 3, -2, np.inf):
            check(linalg.vector_norm(x, ord=order), exponent, np.linalg.norm(a.ravel(), order), dtype)
            check(linalg.vector_norm(x, ord=order, axis=0), exponent, np.linalg.norm(a, order, axis=0), dtype)
        for order in ("fro", "nuc", 2, -2, 1, np.inf):
            check(linalg.matrix_norm(x, ord=order, keepdims=True), exponent, [[np.linalg.norm(a, order)]], dtype)
        check(session.xp.std(x), exponent, a.std(), dtype)
        check(session.xp.std(x, axis=1, keepdims=True, correction=1), exponent, a.std(1, ddof=1, keepdims=True), dtype)


def test_norms_of_zeros_and_of_what_is_not_finite(session: cb.sync.Device) -> None:
    xp = session.xp
    for values in ([0.0, 0.0], [np.inf, 1.0], [np.nan, 1.0], [-np.inf, np.nan], []):
        x = session.put(np.array(values))
        for order in (2, 3, 0.5):
            np.testing.assert_array_equal(xp.linalg.vector_norm(x, ord=order).get(), np.linalg.norm(values, order))
        with np.errstate(all="ignore"):
            want = np.std(values) if values else np.nan
        np.testing.assert_array_equal(xp.std(x).get(), want)


@pytest.mark.parametrize("dtype", DTYPES)
def test_equations(session: cb.sync.Device, dtype: str) -> None:
    linalg, a = session.xp.linalg, matrix(dtype)
    b = np.random.default_rng(5).integers(-8, 9, (N, 2)) / 16
    want = np.linalg.solve(a, b)
    tall = np.concatenate([a, a[::-1] / 2])
    for exponent in far(dtype):
        x, right = (session.put(shifted(one, exponent).astype(dtype)) for one in (a, b))
        check(linalg.solve(x, right), 0, want, dtype)
        stack = session.put(shifted([a, a.T], exponent).astype(dtype))
        check(linalg.solve(stack, right), 0, [want, np.linalg.solve(a.T, b)], dtype)
        check(linalg.lstsq(x, right).x, 0, want, dtype)
        both = session.put(shifted(np.concatenate([b, b]), exponent).astype(dtype))
        found = linalg.lstsq(session.put(shifted(tall, exponent).astype(dtype)), both)
        check(found.x, 0, np.linalg.lstsq(tall, np.concatenate([b, b]), rcond=None)[0], dtype)
        check(found.singular_values, exponent, np.linalg.svd(tall, compute_uv=False), dtype)
        assert found.rank.item() == N
        if abs(exponent) < np.finfo(dtype).maxexp - 8:
            check(linalg.inv(x), -exponent, np.linalg.inv(a), dtype)
            check(linalg.inv(stack), -exponent, np.linalg.inv([a, a.T]), dtype)
            check(linalg.pinv(x), -exponent, np.linalg.inv(a), dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_of_different_units(session: cb.sync.Device, dtype: str) -> None:
    """In a stack, too: of rows, or of columns."""
    linalg, a = session.xp.linalg, matrix(dtype)
    b = np.random.default_rng(6).integers(-8, 9, (N, 2)) / 16
    want, det = np.linalg.solve(a, b), np.linalg.det(a)
    for exponent in far(dtype)[2:]:
        rows = np.array([0, exponent, -exponent, -exponent, exponent])[:, None]
        x = session.put(shifted([a, a], rows).astype(dtype))
        right = session.put(shifted(b, rows).astype(dtype))
        check(linalg.solve(x, right), 0, [want, want], dtype)
        check(linalg.solve(x[0], right), 0, want, dtype)
        check(linalg.det(x), 0, [det, det], dtype)
        check(linalg.det(x[0]), 0, det, dtype)
        columns = session.put(shifted([a, a], rows.T).astype(dtype))
        check(linalg.det(columns), 0, [det, det], dtype)
        sign, size = np.linalg.slogdet(a)
        for both in (x, columns):
            found = linalg.slogdet(both)
            check(found.sign, 0, [sign, sign], dtype)
            check(found.logabsdet, 0, [size, size], "f4" if dtype in ("f4", "c8") else dtype)


def test_determinants_that_leave_the_range(session: cb.sync.Device) -> None:
    stack = session.put(np.stack([1e200 * np.eye(2), 1e-200 * np.eye(2), np.zeros((2, 2)), -np.eye(2)]))
    np.testing.assert_array_equal(session.xp.linalg.det(stack).get(), [np.inf, 0, 0, 1])
