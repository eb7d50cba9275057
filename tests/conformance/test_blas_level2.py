"""Level 2: a matrix and vectors, of any layout and increment."""

from typing import Any

import numpy as np
import pytest
from blas_lab import (
    MATRIX_LAYOUTS,
    SHARED,
    complex_factors,
    dtypes,
    execute,
    extents,
    factors,
    matrix_layouts,
    place_matrix,
    place_vector,
    poisoned,
    scale_of,
    seeds,
    steps,
    turned,
    values,
    wide,
)
from hypothesis import given
from hypothesis import strategies as st

from callboard.core.dtype import DTYPES, DType
from callboard.kernel.blas import Gemv, Ger, Gerc, Geru, Spr, Syr
from callboard.testing.tolerances import assert_close

FLOATS = ("f16", "bf16", "f32", "f64", "c64", "c128")
EVERY = [pytest.param(DTYPES[name], id=name) for name in FLOATS]


def check_product(got: Any, dtype: DType, a: Any, x: Any, y: Any = None, alpha: Any = 1, beta: Any = 0) -> None:
    want, scale = alpha * (a @ x), abs(alpha) * (abs(a) @ abs(x))
    if y is not None and beta != 0:
        want, scale = want + beta * y, scale + abs(beta) * abs(y)
    assert_close(got, want, dtype, a.shape[1] + 2, scale=scale)


@SHARED
@given(data=st.data(), dtype=dtypes(*FLOATS), m=extents, n=extents, seed=seeds)
def test_gemv(session: Any, data: st.DataObject, dtype: DType, m: int, n: int, seed: int) -> None:
    transpose, conj = data.draw(st.booleans(), "transpose"), data.draw(st.booleans(), "conj")
    a, x = values(dtype, (n, m) if transpose else (m, n), seed), values(dtype, (n,), seed + 1)
    at_a = place_matrix(session, a, data.draw(matrix_layouts))
    at_x = place_vector(session, x, data.draw(steps))
    out = place_vector(session, poisoned(dtype, (m,)), data.draw(steps)) if data.draw(st.booleans()) else None
    alpha, beta = (data.draw(complex_factors() if dtype.is_complex else factors()) for _ in range(2))
    y = values(dtype, (m,), seed + 2) if beta.on_device or beta.value != 0 else None
    at_y = None if y is None else place_vector(session, y, data.draw(steps))
    op = Gemv(
        a=at_a.ref,
        x=at_x.ref,
        out=None if out is None else out.ref,
        y=None if at_y is None else at_y.ref,
        alpha=alpha.of(session, scale_of(dtype)),
        beta=beta.of(session, scale_of(dtype)),
        transpose=transpose,
        conj=conj,
    )
    got = session.get(execute(session, op))
    wide_y = None if y is None else wide(y)
    check_product(got, dtype, turned(wide(a), transpose, conj), wide(x), wide_y, alpha.value, beta.value)
    if out is not None:
        out.check_surroundings(session)


@pytest.mark.parametrize("conj", [False, True])
@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize("layout", MATRIX_LAYOUTS)
@pytest.mark.parametrize("dtype", EVERY)
def test_gemv_by_every_pair_of_flags(session: Any, dtype: DType, layout: str, transpose: bool, conj: bool) -> None:
    a, x = values(dtype, (20, 30), 1), values(dtype, (20 if transpose else 30,), 2)
    op = Gemv(a=place_matrix(session, a, layout).ref, x=session.put(x), transpose=transpose, conj=conj)
    check_product(session.get(execute(session, op)), dtype, turned(wide(a), transpose, conj), wide(x))


@pytest.mark.parametrize("dtype", EVERY)
def test_gemv_in_place_of_y(session: Any, dtype: DType) -> None:
    a, x, y = values(dtype, (6, 4), 1), values(dtype, (4,), 2), values(dtype, (6,), 3)
    at_y = place_vector(session, y, 2)
    op = Gemv(a=session.put(a), x=session.put(x), y=at_y.ref, out=at_y.ref, beta=2)
    check_product(session.get(execute(session, op)), dtype, wide(a), wide(x), wide(y), 1, 2)
    at_y.check_surroundings(session)


@pytest.mark.parametrize("on_device", [False, True], ids=["number", "0-d"])
@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize("dtype", EVERY)
def test_gemv_with_beta_0_does_not_read_y(session: Any, dtype: DType, transpose: bool, on_device: bool) -> None:
    a, x = values(dtype, (6, 6), 1), values(dtype, (6,), 2)
    y = session.put(poisoned(dtype, (6,)))
    beta: Any = session.put(np.array(0, scale_of(dtype).np)) if on_device else 0.0
    for out in (y, None):
        op = Gemv(a=session.put(a), x=session.put(x), y=y, out=out, beta=beta, transpose=transpose)
        check_product(session.get(execute(session, op)), dtype, turned(wide(a), transpose, False), wide(x))


@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize("dtype", EVERY)
def test_gemv_without_terms(session: Any, dtype: DType, transpose: bool) -> None:
    """Zeros, or ``beta * y``: what BLAS itself leaves untouched."""
    a, x = session.empty((0, 3) if transpose else (3, 0), dtype), session.empty(0, dtype)
    y = values(dtype, (3,), 1)
    got = session.get(execute(session, Gemv(a=a, x=x, transpose=transpose)))
    np.testing.assert_array_equal(wide(got), np.zeros(3))
    got = session.get(execute(session, Gemv(a=a, x=x, transpose=transpose, y=session.put(y), beta=-2)))
    np.testing.assert_array_equal(wide(got), -2 * wide(y))


@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize("name", FLOATS[:4])
def test_gemv_spreads_nan_and_infinity(session: Any, name: str, transpose: bool) -> None:
    dtype = DTYPES[name]
    a, x = np.ones((4, 4), dtype.np), np.ones(4, dtype.np)
    a[1, 1], a[2, 2] = np.nan, np.inf
    got = wide(session.get(execute(session, Gemv(a=session.put(a), x=session.put(x), transpose=transpose))))
    np.testing.assert_array_equal(got, [4, np.nan, np.inf, 4])


@SHARED
@given(data=st.data(), dtype=dtypes("f32", "f64", "c64", "c128"), m=extents, n=extents, seed=seeds)
def test_rank_1_updates(session: Any, data: st.DataObject, dtype: DType, m: int, n: int, seed: int) -> None:
    x, y, a = values(dtype, (m,), seed), values(dtype, (n,), seed + 1), values(dtype, (m, n), seed + 2)
    at_x, at_y = place_vector(session, x, data.draw(steps)), place_vector(session, y, data.draw(steps))
    at_a = place_matrix(session, a, data.draw(matrix_layouts))
    cls = data.draw(st.sampled_from([Geru, Gerc])) if dtype.is_complex else Ger
    alpha = data.draw(complex_factors() if dtype.is_complex else factors())
    result = execute(session, cls(x=at_x.ref, y=at_y.ref, a=at_a.ref, alpha=alpha.of(session, dtype)))
    outer = np.outer(wide(x), wide(y).conj() if cls is Gerc else wide(y))
    scale = abs(wide(a)) + abs(alpha.value) * abs(outer)
    assert_close(session.get(result), wide(a) + alpha.value * outer, dtype, 2, scale=scale)
    np.testing.assert_array_equal(session.get(at_a.ref), session.get(result), err_msg="a is changed in place")
    at_a.check_surroundings(session)


@SHARED
@given(data=st.data(), dtype=dtypes("f32", "f64", "c64", "c128"), n=extents, seed=seeds, lower=st.booleans())
def test_syr(session: Any, data: st.DataObject, dtype: DType, n: int, seed: int, lower: bool) -> None:
    x, a = values(dtype, (n,), seed), values(dtype, (n, n), seed + 1)
    inside = np.tri(n, dtype=bool) if lower else np.tri(n, dtype=bool).T
    a[~inside] = np.nan  # not to be read, nor written
    at_x, at_a = place_vector(session, x, data.draw(steps)), place_matrix(session, a, data.draw(matrix_layouts))
    alpha = data.draw(complex_factors() if dtype.is_complex else factors())
    got = session.get(execute(session, Syr(x=at_x.ref, a=at_a.ref, alpha=alpha.of(session, dtype), lower=lower)))
    outer = np.outer(wide(x), wide(x))
    want, scale = wide(a) + alpha.value * outer, abs(wide(a)) + abs(alpha.value) * abs(outer)
    assert_close(got[inside], want[inside], dtype, 2, scale=scale[inside])
    assert np.isnan(got[~inside]).all(), "the other triangle is written"
    at_a.check_surroundings(session)


@SHARED
@given(data=st.data(), dtype=dtypes("f32", "f64"), n=extents, seed=seeds, lower=st.booleans())
def test_spr(session: Any, data: st.DataObject, dtype: DType, n: int, seed: int, lower: bool) -> None:
    x, a = values(dtype, (n,), seed), values(dtype, (n * (n + 1) // 2,), seed + 1)
    at_x, at_a = place_vector(session, x, data.draw(steps)), place_vector(session, a, 1)
    alpha = data.draw(factors())
    got = session.get(execute(session, Spr(x=at_x.ref, a=at_a.ref, alpha=alpha.of(session, dtype), lower=lower)))
    outer = np.outer(wide(x), wide(x))[np.tril_indices(n) if lower else np.triu_indices(n)]
    assert_close(got, wide(a) + alpha.value * outer, dtype, 2, scale=abs(wide(a)) + abs(alpha.value) * abs(outer))
    at_a.check_surroundings(session)
