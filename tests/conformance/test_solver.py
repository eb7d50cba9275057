"""LU, Cholesky, QR, least squares and singular values."""

from typing import Any

import numpy as np
import pytest
import scipy.linalg
from hypothesis import given
from solver_lab import (
    FLOATS,
    SHARED,
    adjoint,
    check_residual,
    check_same,
    check_unitary,
    definite,
    dtypes,
    exact,
    execute,
    extents,
    given_or_new,
    layouts,
    put,
    regular,
    seeds,
    st,
    values,
)

from callboard.core.dtype import DTYPES, DType
from callboard.kernel.solver import (
    Cholesky,
    CholeskyInverse,
    CholeskySolve,
    Determinant,
    Geqrf,
    Inverse,
    LeastSquares,
    Lu,
    LuSolve,
    Orgqr,
    Ormqr,
    Qr,
    Solve,
    Svd,
    SvdValues,
)
from callboard.testing.tolerances import assert_close

EVERY = [pytest.param(DTYPES[name], id=name) for name in FLOATS]
columns = st.sampled_from([None, 0, 1, 3])


def ref_of(placed: Any) -> Any:
    return None if placed is None else placed.ref


def right_hand_side(dtype: DType, rows: int, columns: int | None, seed: int) -> Any:
    return values(dtype, (rows,) if columns is None else (rows, columns), seed)


def put_any(session: Any, array: Any, layout: str) -> Any:
    return session.put(array) if array.ndim == 1 else put(session, array, layout)


# -- LU ----------------------------------------------------------------------------------------------------------------


def unpacked(lu: Any, pivots: Any) -> tuple[Any, Any, Any]:
    """L, U and the order of the rows."""
    m, n = lu.shape
    k = min(m, n)
    order = np.arange(m)
    for i, p in enumerate(pivots):
        order[[i, p]] = order[[p, i]]
    return np.tril(lu[:, :k], -1) + np.eye(m, k), np.triu(lu[:k]), order


@SHARED
@given(data=st.data(), dtype=dtypes(*FLOATS), m=extents, n=extents, seed=seeds)
def test_lu(session: Any, data: st.DataObject, dtype: DType, m: int, n: int, seed: int) -> None:
    a = regular(dtype, (m, n), seed)
    out = given_or_new(session, data, dtype, (m, n))
    pivots = session.empty((min(m, n),), "i64") if data.draw(st.booleans()) else None
    result = execute(session, Lu(a=put(session, a, data.draw(layouts)), lu=ref_of(out), pivots=pivots))
    got, rows = session.get(result.lu), session.get(result.pivots)
    lower, upper, order = unpacked(exact(got), rows)
    check_same(lower @ upper, exact(a)[order], dtype)
    assert (abs(lower) <= 1 + 1e-5).all() or dtype.is_complex
    want = scipy.linalg.lu_factor(a)[1] if a.size else np.empty(0)
    np.testing.assert_array_equal(rows, want)
    if out is not None:
        out.check_surroundings(session)


@SHARED
@given(data=st.data(), dtype=dtypes(*FLOATS), n=extents, k=columns, seed=seeds)
def test_solves_with_the_factors(
    session: Any, data: st.DataObject, dtype: DType, n: int, k: int | None, seed: int
) -> None:
    a, b = regular(dtype, (n, n), seed), right_hand_side(dtype, n, k, seed + 1)
    transpose = data.draw(st.sampled_from("ntc"))
    factors = execute(session, Lu(a=session.put(a)))
    lu, pivots = factors.lu, factors.pivots
    if data.draw(st.booleans()):
        lu = put(session, session.get(lu), data.draw(layouts))
        pivots = session.put(session.get(pivots)[::-1].astype(np.int64))[::-1]
    right = put_any(session, b, data.draw(layouts))
    in_place = data.draw(st.booleans())
    x = execute(session, LuSolve(lu=lu, pivots=pivots, b=right, x=right if in_place else None, transpose=transpose))
    turned = {"n": a, "t": a.T, "c": a.conj().T}[transpose]
    check_residual(turned, session.get(x), b, dtype)


@SHARED
@given(data=st.data(), dtype=dtypes(*FLOATS), n=extents, k=columns, seed=seeds)
def test_solves(session: Any, data: st.DataObject, dtype: DType, n: int, k: int | None, seed: int) -> None:
    a, b = regular(dtype, (n, n), seed), right_hand_side(dtype, n, k, seed + 1)
    left, right = put(session, a, data.draw(layouts)), put_any(session, b, data.draw(layouts))
    x = execute(session, Solve(a=left, b=right, x=right if data.draw(st.booleans()) else None))
    check_residual(a, session.get(x), b, dtype)
    np.testing.assert_array_equal(session.get(left), a)


@SHARED
@given(data=st.data(), dtype=dtypes(*FLOATS), n=extents, seed=seeds)
def test_inverse_and_determinant(session: Any, data: st.DataObject, dtype: DType, n: int, seed: int) -> None:
    a = regular(dtype, (n, n), seed)
    ref = put(session, a, data.draw(layouts))
    determinant = session.get(execute(session, Determinant(a=ref)))
    want = np.linalg.det(a.astype(np.complex128))
    assert_close(determinant, want if dtype.is_complex else want.real, dtype, n, kind="solve", scale=abs(want))
    inverse = execute(session, Inverse(a=ref, out=ref if data.draw(st.booleans()) else None))
    check_residual(a, session.get(inverse), np.eye(n, dtype=dtype.np), dtype)


@pytest.mark.parametrize("dtype", EVERY)
def test_an_odd_number_of_exchanges_turns_the_sign(session: Any, dtype: DType) -> None:
    a = np.eye(4, dtype=dtype.np)[[1, 2, 3, 0]]
    assert session.get(execute(session, Determinant(a=session.put(a)))) == -1
    a = np.eye(5, dtype=dtype.np)[[1, 2, 3, 4, 0]]
    assert session.get(execute(session, Determinant(a=session.put(a)))) == 1
    assert session.get(execute(session, Determinant(a=session.put(np.ones((3, 3), dtype.np))))) == 0


# -- Cholesky ----------------------------------------------------------------------------------------------------------


@SHARED
@given(data=st.data(), dtype=dtypes(*FLOATS), n=extents, k=columns, lower=st.booleans(), seed=seeds)
def test_cholesky(
    session: Any, data: st.DataObject, dtype: DType, n: int, k: int | None, lower: bool, seed: int
) -> None:
    a = definite(dtype, (n, n), seed)
    stored = np.tril(a) if lower else np.triu(a)
    stored = stored + (np.triu if lower else np.tril)(np.full_like(a, 99), 1 if lower else -1)  # is not looked at
    ref = put(session, stored, data.draw(layouts))
    in_place = data.draw(st.booleans())
    factor = execute(session, Cholesky(a=ref, out=ref if in_place else None, lower=lower))
    got = exact(session.get(factor))
    np.testing.assert_array_equal(got, (np.tril if lower else np.triu)(got))
    check_same(got @ adjoint(got) if lower else adjoint(got) @ got, exact(a), dtype)
    b = right_hand_side(dtype, n, k, seed + 1)
    right = put_any(session, b, data.draw(layouts))
    x = execute(session, CholeskySolve(factor=factor, b=right, lower=lower))
    check_residual(a, session.get(x), b, dtype)
    inverse = session.get(execute(session, CholeskyInverse(factor=factor, lower=lower)))
    check_residual(a, inverse, np.eye(n, dtype=dtype.np), dtype)


# -- QR ----------------------------------------------------------------------------------------------------------------


@SHARED
@given(data=st.data(), dtype=dtypes(*FLOATS), m=extents, n=extents, seed=seeds)
def test_qr(session: Any, data: st.DataObject, dtype: DType, m: int, n: int, seed: int) -> None:
    a, mode = values(dtype, (m, n), seed), data.draw(st.sampled_from(["reduced", "complete"]))
    k = m if mode == "complete" else min(m, n)
    ref = put(session, a, data.draw(layouts))
    at_q = given_or_new(session, data, dtype, (m, k))
    result = execute(
        session, Qr(a=ref, q=ref_of(at_q), r=ref if k == m and data.draw(st.booleans()) else None, mode=mode)
    )
    q, r = session.get(result.q), session.get(result.r)
    np.testing.assert_array_equal(r, np.triu(r))
    check_unitary(q, dtype)
    check_same(exact(q) @ exact(r), exact(a), dtype)
    if at_q is not None:
        at_q.check_surroundings(session)


@SHARED
@given(data=st.data(), dtype=dtypes(*FLOATS), m=extents, n=extents, seed=seeds)
def test_reflections(session: Any, data: st.DataObject, dtype: DType, m: int, n: int, seed: int) -> None:
    a, k = values(dtype, (m, n), seed), min(m, n)
    result = execute(session, Geqrf(a=put(session, a, data.draw(layouts))))
    count = data.draw(st.integers(k, m))
    q = exact(session.get(execute(session, Orgqr(h=result.h, tau=result.tau, columns=count))))
    whole = exact(session.get(execute(session, Orgqr(h=result.h, tau=result.tau, columns=m))))
    check_unitary(whole, dtype)
    np.testing.assert_allclose(whole[:, :count].astype(complex), q.astype(complex), atol=1e-4)
    check_same(whole[:, :k] @ np.triu(exact(session.get(result.h)))[:k], exact(a), dtype)
    side, transpose = data.draw(st.sampled_from(["left", "right"])), data.draw(st.booleans())
    c = values(dtype, (m, 3) if side == "left" else (3, m), seed + 1)
    ref = put(session, c, data.draw(layouts))
    op = Ormqr(
        h=put(session, session.get(result.h), data.draw(layouts)),
        tau=result.tau,
        c=ref,
        out=ref if data.draw(st.booleans()) else None,
        side=side,
        transpose=transpose,
    )
    turned = adjoint(whole) if transpose else whole
    want = turned @ exact(c) if side == "left" else exact(c) @ turned
    check_same(session.get(execute(session, op)), want, dtype)


@SHARED
@given(data=st.data(), dtype=dtypes(*FLOATS), m=extents, n=extents, k=columns, seed=seeds)
def test_least_squares(
    session: Any, data: st.DataObject, dtype: DType, m: int, n: int, k: int | None, seed: int
) -> None:
    a, b = regular(dtype, (m, n), seed), right_hand_side(dtype, m, k, seed + 1)
    left, right = put(session, a, data.draw(layouts)), put_any(session, b, data.draw(layouts))
    x = session.get(execute(session, LeastSquares(a=left, b=right, x=right if m == n else None)))
    wide = np.complex128 if dtype.is_complex else np.float64
    want = np.linalg.pinv(a.astype(wide)) @ b.astype(wide) if a.size else np.zeros(x.shape)
    check_same(x, want, dtype, float(np.linalg.norm(b)))


# -- singular values ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["auto", "gesvd", "gesdd", "gesvdj"])
@SHARED
@given(data=st.data(), dtype=dtypes(*FLOATS), m=extents, n=extents, seed=seeds)
def test_svd(session: Any, method: Any, data: st.DataObject, dtype: DType, m: int, n: int, seed: int) -> None:
    if method == "gesdd" and session.backend.name == "cuda":
        pytest.skip("gesdd is a method of another backend")
    a, full = values(dtype, (m, n), seed), data.draw(st.booleans())
    k = min(m, n)
    ref = put(session, a, data.draw(layouts))
    at_u = given_or_new(session, data, dtype, (m, m if full else k))
    at_vt = given_or_new(session, data, dtype, (n if full else k, n))
    op = Svd(a=ref, u=ref_of(at_u), vt=ref_of(at_vt), full_matrices=full, method=method)
    u, s, vt = (session.get(x) for x in execute(session, op))
    check_unitary(u, dtype)
    check_unitary(adjoint(vt), dtype)
    assert (np.diff(s) <= 0).all()
    assert (s >= 0).all()
    check_same(exact(u)[:, :k] * s @ exact(vt)[:k], exact(a), dtype)
    want = np.linalg.svd(a.astype(np.complex128), compute_uv=False) if a.size else np.empty(0)
    check_same(s, want, dtype)
    check_same(session.get(execute(session, SvdValues(a=ref, method=method))), want, dtype)
    for placed in (at_u, at_vt):
        if placed is not None:
            placed.check_surroundings(session)


@pytest.mark.parametrize("dtype", EVERY)
@pytest.mark.parametrize("shape", [(70, 40), (40, 70), (65, 65)])
def test_larger_ones(session: Any, dtype: DType, shape: tuple[int, int]) -> None:
    """Blocked algorithms."""
    a = values(dtype, shape, 3)
    ref, m = session.put(a), shape[0]
    u, s, vt = (session.get(x) for x in execute(session, Svd(a=ref)))
    check_same(exact(u) * s @ exact(vt), exact(a), dtype)
    q, r = (session.get(x) for x in execute(session, Qr(a=ref)))
    check_same(exact(q) @ exact(r), exact(a), dtype)
    square = regular(dtype, (m, m), 4)
    x = execute(session, Solve(a=session.put(square), b=ref))
    check_residual(square, session.get(x), a, dtype)
