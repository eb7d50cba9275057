"""``Gemm``: dtypes, layouts, flags, numbers and 0-d arrays, against products in higher precision."""

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
    poisoned,
    scale_of,
    seeds,
    turned,
    values,
    wide,
)
from hypothesis import given
from hypothesis import strategies as st

from callboard.core.dtype import DTYPES, DType
from callboard.core.errors import ShapeError
from callboard.kernel.blas import Gemm
from callboard.testing.tolerances import assert_close

FLOATS = ("f16", "bf16", "f32", "f64", "c64", "c128")
EVERY = [pytest.param(DTYPES[name], id=name) for name in FLOATS]
REAL = [pytest.param(DTYPES[name], id=name) for name in FLOATS[:4]]


def check_product(
    got: Any, dtype: DType, a: Any, b: Any, c: Any = None, alpha: Any = 1, beta: Any = 0, computed: Any = None
) -> None:
    """Compare with the same product in higher precision; ``a`` and ``b`` are wide and turned already."""
    want, scale = alpha * (a @ b), abs(alpha) * (abs(a) @ abs(b))
    if c is not None and beta != 0:
        want, scale = want + beta * c, scale + abs(beta) * abs(c)
    assert_close(got, want, computed or dtype, a.shape[1] + 2, scale=scale)


@SHARED
@given(data=st.data(), dtype=dtypes(*FLOATS), m=extents, n=extents, k=extents, seed=seeds)
def test_products_of_any_layout(
    session: Any, data: st.DataObject, dtype: DType, m: int, n: int, k: int, seed: int
) -> None:
    flags = {name: data.draw(st.booleans(), name) for name in ("transpose_a", "transpose_b")}
    a = values(dtype, (k, m) if flags["transpose_a"] else (m, k), seed)
    b = values(dtype, (n, k) if flags["transpose_b"] else (k, n), seed + 1)
    at_a, at_b = (place_matrix(session, x, data.draw(matrix_layouts)) for x in (a, b))
    out = (
        place_matrix(session, poisoned(dtype, (m, n)), data.draw(matrix_layouts)) if data.draw(st.booleans()) else None
    )
    alpha, beta = (data.draw(complex_factors() if dtype.is_complex else factors()) for _ in range(2))
    c = values(dtype, (m, n), seed + 2) if beta.on_device or beta.value != 0 else None
    at_c = None if c is None else place_matrix(session, c, data.draw(matrix_layouts))
    op = Gemm(
        a=at_a.ref,
        b=at_b.ref,
        out=None if out is None else out.ref,
        c=None if at_c is None else at_c.ref,
        alpha=alpha.of(session, scale_of(dtype)),
        beta=beta.of(session, scale_of(dtype)),
        **flags,
    )
    result = execute(session, op)
    wide_a, wide_b = turned(wide(a), flags["transpose_a"], False), turned(wide(b), flags["transpose_b"], False)
    check_product(session.get(result), dtype, wide_a, wide_b, None if c is None else wide(c), alpha.value, beta.value)
    if out is None:
        assert result.layout.contiguous
    else:
        assert result.layout == out.ref.layout
        out.check_surroundings(session)
    for name, placed, before in (("a", at_a, a), ("b", at_b, b), ("c", at_c, c)):
        if placed is not None:
            np.testing.assert_array_equal(session.get(placed.ref), before, err_msg=f"{name} was written")


@pytest.mark.parametrize("out_layout", [None, *MATRIX_LAYOUTS])
@pytest.mark.parametrize("b_layout", MATRIX_LAYOUTS)
@pytest.mark.parametrize("a_layout", MATRIX_LAYOUTS)
@pytest.mark.parametrize("dtype", [pytest.param(DTYPES[name], id=name) for name in ("c64", "c128")])
def test_conjugates(session: Any, dtype: DType, a_layout: str, b_layout: str, out_layout: str | None) -> None:
    """Each factor by each pair of flags; refused exactly where nothing is transposed in memory."""
    out = None if out_layout is None else place_matrix(session, poisoned(dtype, (3, 4)), out_layout)
    out_columns = out is not None and out.columns
    for transpose in (False, True):
        a = values(dtype, (5, 3) if transpose else (3, 5), 1)
        b = values(dtype, (4, 5) if transpose else (5, 4), 2)
        at_a, at_b = place_matrix(session, a, a_layout), place_matrix(session, b, b_layout)
        for conj_a, conj_b in ((True, False), (False, True), (True, True)):
            possible = all(
                not conj or (placed.columns ^ transpose ^ out_columns)
                for conj, placed in ((conj_a, at_a), (conj_b, at_b))
            )
            op = Gemm(
                a=at_a.ref,
                b=at_b.ref,
                out=None if out is None else out.ref,
                transpose_a=transpose,
                transpose_b=transpose,
                conj_a=conj_a,
                conj_b=conj_b,
            )
            if possible:
                got = session.get(execute(session, op))
                check_product(got, dtype, turned(wide(a), transpose, conj_a), turned(wide(b), transpose, conj_b))
            else:
                with pytest.raises(ShapeError, match=r"blas.gemm: conj of [ab] without .* pass dev.copy\([ab]"):
                    session.submit(op)


@pytest.mark.parametrize("dtype", REAL)
def test_conj_of_real_factors_changes_nothing(session: Any, dtype: DType) -> None:
    a, b = values(dtype, (3, 5), 1), values(dtype, (5, 4), 2)
    got = session.get(execute(session, Gemm(a=session.put(a), b=session.put(b), conj_a=True, conj_b=True)))
    check_product(got, dtype, wide(a), wide(b))


@pytest.mark.parametrize("k", [1, 200, 1000])
@pytest.mark.parametrize("dtype", EVERY)
def test_long_sums_are_kept_in_f32_or_better(session: Any, dtype: DType, k: int) -> None:
    a, b = values(dtype, (33, k), 1), values(dtype, (k, 17), 2)
    check_product(session.get(execute(session, Gemm(a=session.put(a), b=session.put(b)))), dtype, wide(a), wide(b))


@SHARED
@given(data=st.data(), m=st.integers(0, 3), n=st.integers(0, 3), k=st.integers(0, 5), seed=seeds, odd=st.booleans())
def test_i8_is_exact_in_i32(session: Any, data: st.DataObject, m: int, n: int, k: int, seed: int, odd: bool) -> None:
    """Extents of 4 (what every library multiplies), or any where the backend takes them."""
    i8, i32 = DTYPES["i8"], DTYPES["i32"]
    m, n, k = (m + 1, n + 3, k + 2) if odd else (4 * m, 4 * n, 4 * k)
    a, b = values(i8, (m, k), seed), values(i8, (k, n), seed + 1)
    alpha, beta = data.draw(factors(1.0, -3.0, 0.0, 2.0**20 + 1)), data.draw(factors(0.0, 1.0, -7.0))
    c = values(i8, (m, n), seed + 2).astype(np.int32) if beta.on_device or beta.value != 0 else None
    op = Gemm(
        a=place_matrix(session, a, data.draw(st.sampled_from(["rows", "columns"]))).ref,
        b=place_matrix(session, b, data.draw(st.sampled_from(["rows", "columns"]))).ref,
        c=None if c is None else session.put(c),
        alpha=alpha.of(session, i32),
        beta=beta.of(session, i32),
    )
    result = execute(session, op)
    assert result.dtype is i32
    want = int(alpha.value) * (wide(a) @ wide(b)) + (int(beta.value) * wide(c) if c is not None else 0)
    wrapped = ((np.array(want, object).reshape(m, n) + 2**31) % 2**32 - 2**31).astype(np.int64)
    np.testing.assert_array_equal(session.get(result), wrapped)


@pytest.mark.parametrize("dtype", EVERY)
def test_out_may_be_c(session: Any, dtype: DType) -> None:
    a, b, c = values(dtype, (4, 6), 1), values(dtype, (6, 5), 2), values(dtype, (4, 5), 3)
    at_c = place_matrix(session, c, "padded rows")
    result = execute(session, Gemm(a=session.put(a), b=session.put(b), c=at_c.ref, out=at_c.ref, alpha=2, beta=-0.5))
    check_product(session.get(result), dtype, wide(a), wide(b), wide(c), 2, -0.5)
    check_product(session.get(at_c.ref), dtype, wide(a), wide(b), wide(c), 2, -0.5)
    at_c.check_surroundings(session)


@pytest.mark.parametrize("dtype", EVERY)
def test_a_square_by_itself(session: Any, dtype: DType) -> None:
    a = values(dtype, (6, 6), 1)
    ref = session.put(a)
    check_product(session.get(execute(session, Gemm(a=ref, b=ref, transpose_b=True))), dtype, wide(a), wide(a).T)


@pytest.mark.parametrize("on_device", [False, True], ids=["number", "0-d"])
@pytest.mark.parametrize("out_layout", ["rows", "columns"])
@pytest.mark.parametrize("dtype", EVERY)
def test_beta_0_does_not_read_c(session: Any, dtype: DType, out_layout: str, on_device: bool) -> None:
    a, b = values(dtype, (4, 6), 1), values(dtype, (6, 5), 2)
    at_c = place_matrix(session, poisoned(dtype, (4, 5)), out_layout)
    beta: Any = session.put(np.array(0, scale_of(dtype).np)) if on_device else 0.0
    for out in (at_c.ref, session.empty((4, 5), dtype)):
        got = session.get(execute(session, Gemm(a=session.put(a), b=session.put(b), c=at_c.ref, out=out, beta=beta)))
        check_product(got, dtype, wide(a), wide(b))


@pytest.mark.parametrize("dtype", EVERY)
def test_no_terms_give_zeros_or_beta_c(session: Any, dtype: DType) -> None:
    a, b, c = (session.put(values(dtype, shape, 3)) for shape in ((3, 0), (0, 4), (3, 4)))
    np.testing.assert_array_equal(wide(session.get(execute(session, Gemm(a=a, b=b)))), np.zeros((3, 4)))
    got = session.get(execute(session, Gemm(a=a, b=b, c=c, beta=-2)))
    np.testing.assert_array_equal(wide(got), -2 * wide(session.get(c)))


@pytest.mark.parametrize("dtype", REAL)
def test_nan_and_infinity_go_where_arithmetic_takes_them(session: Any, dtype: DType) -> None:
    a, b, c = (np.ones(shape, dtype.np) for shape in ((4, 3), (3, 4), (4, 4)))
    a[0, 1], a[1, 0], b[2, 3], c[3, 0] = np.nan, np.inf, -np.inf, np.nan
    got = wide(session.get(execute(session, Gemm(a=session.put(a), b=session.put(b), c=session.put(c), beta=1))))
    with np.errstate(invalid="ignore"):
        want = wide(a) @ wide(b) + wide(c)
    np.testing.assert_array_equal(got, want)
    assert np.isnan(got[0]).all()
    assert np.isnan(got[1, 3]), "inf - inf"
    assert np.isnan(got[3, 0])


def test_f16_overflows_at_the_end_only(session: Any) -> None:
    """Partial sums beyond the range of f16 are fine; a result beyond it is an infinity."""
    f16 = DTYPES["f16"]
    a, b = np.full((1, 2), 256, f16.np), np.full((2, 1), 256, f16.np)
    assert wide(session.get(execute(session, Gemm(a=session.put(a), b=session.put(b)))))[0, 0] == np.inf
    b[1] = -256
    assert wide(session.get(execute(session, Gemm(a=session.put(a), b=session.put(b)))))[0, 0] == 0


@pytest.mark.parametrize("tf32", [None, False, True])
@pytest.mark.parametrize("name", ["f32", "c64"])
def test_tf32_is_a_permission(session: Any, name: str, tf32: bool | None) -> None:
    dtype = DTYPES[name]
    a, b = values(dtype, (40, 300), 1), values(dtype, (300, 24), 2)
    got = session.get(execute(session, Gemm(a=session.put(a), b=session.put(b), tf32=tf32)))
    check_product(got, dtype, wide(a), wide(b), computed="tf32" if tf32 else dtype)


def test_alpha_and_beta_may_come_from_the_ops_before(session: Any) -> None:
    """A 0-d result is a factor without a detour over the host."""
    x = values(DTYPES["f64"], (1, 6), 1)
    ref = session.put(x)
    square = execute(session, Gemm(a=ref, b=ref, transpose_b=True))[0, 0]
    got = session.get(execute(session, Gemm(a=ref, b=ref, transpose_a=True, alpha=square)))
    check_product(got, DTYPES["f64"], x.T, x, alpha=(x @ x.T).item())
