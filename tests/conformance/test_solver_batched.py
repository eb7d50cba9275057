"""Stacks of matrices."""

from typing import Any

import numpy as np
import pytest
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
    hermitian,
    layouts,
    put,
    regular,
    seeds,
    st,
    values,
)
from test_solver import unpacked

from callboard.core.dtype import DTYPES, DType
from callboard.core.errors import NumericalError
from callboard.kernel.solver import (
    GelsBatched,
    GeqrfBatched,
    GesvdjBatched,
    GesvdjValuesBatched,
    GetrfBatched,
    GetrsBatched,
    PotrfBatched,
    PotrsBatched,
    SyevBatched,
)

EVERY = [pytest.param(DTYPES[name], id=name) for name in FLOATS]
batches, extents = st.integers(0, 4), st.integers(0, 5)


@SHARED
@given(data=st.data(), dtype=dtypes(*FLOATS), batch=batches, n=extents, k=st.integers(0, 3), seed=seeds)
def test_lu(session: Any, data: st.DataObject, dtype: DType, batch: int, n: int, k: int, seed: int) -> None:
    a, b = regular(dtype, (batch, n, n), seed), values(dtype, (batch, n, k), seed + 1)
    ref = put(session, a, data.draw(layouts))
    result = execute(session, GetrfBatched(a=ref, lu=ref if data.draw(st.booleans()) else None))
    for got, rows, want in zip(session.get(result.lu), session.get(result.pivots), a, strict=True):
        lower, upper, order = unpacked(exact(got), rows)
        check_same(lower @ upper, exact(want)[order], dtype)
    right, transpose = put(session, b, data.draw(layouts)), data.draw(st.sampled_from("ntc"))
    x = execute(
        session,
        GetrsBatched(
            lu=result.lu,
            pivots=result.pivots,
            b=right,
            x=right if data.draw(st.booleans()) else None,
            transpose=transpose,
        ),
    )
    for matrix, found, want in zip(a, session.get(x), b, strict=True):
        check_residual({"n": matrix, "t": matrix.T, "c": matrix.conj().T}[transpose], found, want, dtype)


@SHARED
@given(data=st.data(), dtype=dtypes(*FLOATS), batch=batches, n=extents, lower=st.booleans(), seed=seeds)
def test_cholesky(session: Any, data: st.DataObject, dtype: DType, batch: int, n: int, lower: bool, seed: int) -> None:
    a, b = definite(dtype, (batch, n, n), seed), values(dtype, (batch, n, data.draw(st.integers(0, 3))), seed + 1)
    factor = execute(session, PotrfBatched(a=put(session, a, data.draw(layouts)), lower=lower))
    for got, want in zip(exact(session.get(factor)), exact(a), strict=True):
        np.testing.assert_array_equal(got, (np.tril if lower else np.triu)(got))
        check_same(got @ adjoint(got) if lower else adjoint(got) @ got, want, dtype)
    x = execute(session, PotrsBatched(factor=factor, b=put(session, b, data.draw(layouts)), lower=lower))
    for matrix, found, want in zip(a, session.get(x), b, strict=True):
        check_residual(matrix, found, want, dtype)


@SHARED
@given(data=st.data(), dtype=dtypes(*FLOATS), batch=batches, m=extents, n=extents, seed=seeds)
def test_qr_and_least_squares(
    session: Any, data: st.DataObject, dtype: DType, batch: int, m: int, n: int, seed: int
) -> None:
    a = regular(dtype, (batch, m, n), seed)
    ref = put(session, a, data.draw(layouts))
    result = execute(session, GeqrfBatched(a=ref))
    for h, tau, want in zip(session.get(result.h), session.get(result.tau), a, strict=True):
        q = np.eye(m, dtype=exact(want).dtype)
        for i, factor in enumerate(exact(tau)):
            v = np.concatenate([np.zeros(i), [1], h[i + 1 :, i]]).astype(q.dtype)
            q = q - factor * np.outer(q @ v, v.conj())
        check_same(q @ np.triu(exact(h)), exact(want), dtype)
    if m >= n:
        b = values(dtype, (batch, m, 2), seed + 1)
        x = session.get(execute(session, GelsBatched(a=ref, b=put(session, b, data.draw(layouts)))))
        for matrix, found, want in zip(a, x, b, strict=True):
            wide = np.complex128 if dtype.is_complex else np.float64
            solution = np.linalg.pinv(matrix.astype(wide)) @ want if matrix.size else np.zeros(found.shape)
            check_same(found, solution, dtype, float(np.linalg.norm(want)))


def check_singular_values(s: Any, a: Any, dtype: DType) -> None:
    """Against NumPy in double precision."""
    assert s.shape == (len(a), min(a.shape[1:]))
    for values_of, matrix in zip(s, a, strict=True):
        wide = matrix.astype(np.complex128 if dtype.is_complex else np.float64)
        want = np.linalg.svd(wide, compute_uv=False) if wide.size else np.empty(0)
        check_same(values_of, want, dtype)


@SHARED
@given(data=st.data(), dtype=dtypes(*FLOATS), batch=batches, m=extents, n=extents, seed=seeds)
def test_svd(session: Any, data: st.DataObject, dtype: DType, batch: int, m: int, n: int, seed: int) -> None:
    a = values(dtype, (batch, m, n), seed)
    ref = put(session, a, data.draw(layouts))
    whole = session.put(np.full((batch, 2 * min(m, n)), 7, dtype.real.np))
    at_s = whole[:, ::2] if data.draw(st.booleans()) else None
    only = session.get(execute(session, GesvdjValuesBatched(a=ref, s=at_s)))
    assert (session.get(whole)[:, 1::2] == 7).all()
    check_singular_values(only, a, dtype)
    result = execute(session, GesvdjBatched(a=ref))
    for u, s, vt, want in zip(*(session.get(x) for x in result), a, strict=True):
        check_unitary(u, dtype)
        check_unitary(adjoint(vt), dtype)
        assert (np.diff(s) <= 0).all()
        check_same(exact(u) * s @ exact(vt), exact(want), dtype)


@SHARED
@given(data=st.data(), dtype=dtypes(*FLOATS), batch=batches, n=extents, lower=st.booleans(), seed=seeds)
def test_eigen(session: Any, data: st.DataObject, dtype: DType, batch: int, n: int, lower: bool, seed: int) -> None:
    a = hermitian(dtype, (batch, n, n), seed)
    ref = put(session, a, data.draw(layouts))
    result = execute(session, SyevBatched(a=ref, v=ref if data.draw(st.booleans()) else None, lower=lower))
    for w, v, want in zip(session.get(result.w), session.get(result.v), a, strict=True):
        check_unitary(v, dtype)
        assert (np.diff(w) >= 0).all()
        check_same(exact(v) * w @ adjoint(exact(v)), exact(want), dtype)


@pytest.mark.parametrize("dtype", EVERY)
def test_beyond_32(session: Any, dtype: DType) -> None:
    """Where the libraries' batched kernels end."""
    for m, n in ((40, 33), (33, 40), (200, 3), (3, 200)):
        a = values(dtype, (3, m, n), 1)
        ref = session.put(a)
        result = execute(session, GesvdjBatched(a=ref))
        for u, s, vt, want in zip(*map(session.get, result), a, strict=True):
            check_unitary(u, dtype)
            check_unitary(adjoint(vt), dtype)
            check_same(exact(u) * s @ exact(vt), exact(want), dtype)
        check_singular_values(session.get(execute(session, GesvdjValuesBatched(a=ref))), a, dtype)
    a = hermitian(dtype, (3, 40, 40), 2)
    for w, v, want in zip(*map(session.get, execute(session, SyevBatched(a=session.put(a)))), a, strict=True):
        check_same(exact(v) * w @ adjoint(exact(v)), exact(want), dtype)
    a = regular(dtype, (3, 40, 40), 3)
    lu = execute(session, GetrfBatched(a=session.put(a)))
    x = session.get(execute(session, GetrsBatched(lu=lu.lu, pivots=lu.pivots, b=session.put(a))))
    check_same(x, np.broadcast_to(np.eye(40), x.shape), dtype)


@pytest.mark.parametrize("dtype", EVERY)
def test_the_first_failing_item_is_named(session: Any, dtype: DType) -> None:
    a = np.stack([2 * np.eye(3, dtype=dtype.np)] * 5)
    a[2, 1, 1] = a[4, 0, 0] = 0
    ref = session.put(a)
    with pytest.raises(
        NumericalError, match=r"singular: pivot 1 .* \(item 2, the first of 2 that failed among 5\)"
    ) as e:
        execute(session, GetrfBatched(a=ref))
    assert (e.value.info, e.value.item) == (2, 2)
    with pytest.raises(NumericalError, match=r"minor of order 2 .* \(item 2, the first of 2") as e:
        execute(session, PotrfBatched(a=ref))
    assert (e.value.info, e.value.item) == (2, 2)
    with pytest.raises(NumericalError, match=r"full rank: diagonal element 1 .* \(item 2, the first of 2"):
        execute(session, GelsBatched(a=ref, b=ref))
    zeros = session.put(np.zeros((2, 4, 3), dtype.np))
    with pytest.raises(NumericalError, match=r"full rank: diagonal element 0 .* \(item 0, the first of 2"):
        execute(session, GelsBatched(a=zeros, b=zeros))
