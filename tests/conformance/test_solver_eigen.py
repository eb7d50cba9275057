"""Eigenvalues: symmetric, by ranges, generalised, general."""

from typing import Any

import numpy as np
import pytest
import scipy.linalg
from hypothesis import given
from solver_lab import (
    FLOATS,
    SHARED,
    adjoint,
    check_same,
    check_unitary,
    definite,
    dtypes,
    exact,
    execute,
    extents,
    given_or_new,
    hermitian,
    layouts,
    put,
    seeds,
    st,
    values,
)

from callboard.core.dtype import DTYPES, DType
from callboard.core.errors import NumericalError, ShapeError
from callboard.kernel.solver import (
    Geev,
    GeevValues,
    Syevd,
    SyevdValues,
    SyevdxIndex,
    SyevdxRange,
    Sygvd,
    SygvdValues,
)

EVERY = [pytest.param(DTYPES[name], id=name) for name in FLOATS]


def wide(array: Any) -> Any:
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)


def one_triangle(a: Any, lower: bool) -> Any:
    """Noise where nobody looks."""
    noise = np.full_like(a, 99)
    return np.tril(a) + np.triu(noise, 1) if lower else np.triu(a) + np.tril(noise, -1)


@pytest.mark.parametrize("method", ["syevd", "syevj"])
@SHARED
@given(data=st.data(), dtype=dtypes(*FLOATS), n=extents, lower=st.booleans(), seed=seeds)
def test_symmetric(
    session: Any, method: Any, data: st.DataObject, dtype: DType, n: int, lower: bool, seed: int
) -> None:
    a = hermitian(dtype, (n, n), seed)
    ref = put(session, one_triangle(a, lower), data.draw(layouts))
    at_v = given_or_new(session, data, dtype, (n, n))
    want = np.linalg.eigvalsh(wide(a))
    values_only = session.get(execute(session, SyevdValues(a=ref, lower=lower)))
    check_same(values_only, want, dtype)
    v = ref if at_v is None and data.draw(st.booleans()) else None if at_v is None else at_v.ref
    result = execute(session, Syevd(a=ref, v=v, lower=lower, method=method))
    w, v = session.get(result.w), session.get(result.v)
    check_same(w, want, dtype)
    check_unitary(v, dtype)
    check_same(exact(v) * w @ adjoint(exact(v)), exact(a), dtype)
    if at_v is not None:
        at_v.check_surroundings(session)


@pytest.mark.parametrize("dtype", [pytest.param(DTYPES[name], id=name) for name in ("f32", "c128")])
@pytest.mark.parametrize("n", [64, 65, 129, 512, 513])
def test_where_routines_change(session: Any, dtype: DType, n: int) -> None:
    """The CUDA backend takes another one for larger matrices."""
    a = hermitian(dtype, (n, n), n)
    ref = session.put(a)
    want = np.linalg.eigvalsh(wide(a))
    check_same(session.get(execute(session, SyevdValues(a=ref))), want, dtype)
    for method in ("syevd", "syevj") if n < 100 else ("syevd",):
        result = execute(session, Syevd(a=ref, method=method))
        w, v = session.get(result.w), wide(session.get(result.v))
        check_same(w, want, dtype)
        check_same(adjoint(v) @ v, np.eye(n), dtype, 1.0)
        check_same(v * wide(w) @ adjoint(v), wide(a), dtype)


@pytest.mark.parametrize("dtype", EVERY)
def test_ranges_of_a_larger_one(session: Any, dtype: DType) -> None:
    n = 200
    a = hermitian(dtype, (n, n), 5)
    ref, every = session.put(a), np.linalg.eigvalsh(wide(a))
    scale = float(np.linalg.norm(a))
    for start, stop in ((0, 1), (n - 3, n), (50, 130)):
        w, v = (session.get(x) for x in execute(session, SyevdxIndex(a=ref, start=start, stop=stop)))
        check_same(w, every[start:stop], dtype, scale)
        check_same(wide(a) @ wide(v), wide(v) * w, dtype, scale)
    for low, high in ((-np.inf, every[20] - 1e-3), ((every[90] + every[91]) / 2, np.inf)):
        w, v, found = (session.get(x) for x in execute(session, SyevdxRange(a=ref, low=low, high=high)))
        want = every[(every > low) & (every <= high)]
        assert found == len(w) == len(want)
        check_same(w, want, dtype, scale)
        check_same(wide(a) @ wide(v), wide(v) * w, dtype, scale)


@SHARED
@given(data=st.data(), dtype=dtypes(*FLOATS), n=extents, lower=st.booleans(), seed=seeds)
def test_by_position(session: Any, data: st.DataObject, dtype: DType, n: int, lower: bool, seed: int) -> None:
    a = hermitian(dtype, (n, n), seed)
    start = data.draw(st.integers(0, n))
    stop = data.draw(st.none() | st.integers(start, n))
    ref = put(session, one_triangle(a, lower), data.draw(layouts))
    result = execute(session, SyevdxIndex(a=ref, start=start, stop=stop, lower=lower))
    w, v = session.get(result.w), session.get(result.v)
    check_same(w, np.linalg.eigvalsh(wide(a))[start:stop], dtype, float(np.linalg.norm(a)))
    check_unitary(v, dtype)
    check_same(exact(a) @ exact(v), exact(v) * w, dtype, float(np.linalg.norm(a)))


@SHARED
@given(data=st.data(), dtype=dtypes(*FLOATS), n=extents, lower=st.booleans(), seed=seeds)
def test_by_value(session: Any, data: st.DataObject, dtype: DType, n: int, lower: bool, seed: int) -> None:
    a = hermitian(dtype, (n, n), seed)
    every = np.linalg.eigvalsh(wide(a))
    # Between two eigenvalues, where rounding decides nothing.
    edges = [-np.inf, *((every[1:] + every[:-1]) / 2), np.inf]
    i = data.draw(st.integers(0, len(edges) - 1))
    j = data.draw(st.integers(i, len(edges) - 1))
    low, high = edges[i], edges[j]
    want = every[(every > low) & (every <= high)]
    capacity = data.draw(st.integers(len(want), n + 2))
    given_w = session.empty((capacity,), dtype.real) if data.draw(st.booleans()) else None
    capacity = len(want) if given_w is None else capacity
    ref = put(session, one_triangle(a, lower), data.draw(layouts))
    result = execute(session, SyevdxRange(a=ref, low=low, high=high, w=given_w, lower=lower))
    w, v, found = (session.get(x) for x in result)
    assert found == len(want)
    assert w.shape == (capacity,)
    assert np.isnan(w[found:]).all()
    assert np.isnan(v[:, found:]).all()
    scale = float(np.linalg.norm(a))
    check_same(w[:found], want, dtype, scale)
    check_unitary(v[:, :found], dtype)
    check_same(exact(a) @ exact(v[:, :found]), exact(v[:, :found]) * w[:found], dtype, scale)


def test_more_eigenvalues_than_there_is_room_for(session: Any) -> None:
    a = session.put(np.diag(np.arange(6.0)))
    op = SyevdxRange(a=a, low=0.5, high=4.5, w=session.empty((3,), "f64"))
    with pytest.raises(NumericalError, match="4 eigenvalues lie in the range, the outputs hold 3"):
        execute(session, op)
    with pytest.raises(ShapeError, match=r"low is 2\.0 and high is 1\.0"):
        session.submit(SyevdxRange(a=a, low=2, high=1))
    with pytest.raises(ShapeError, match="start is 4 and stop is 7"):
        session.submit(SyevdxIndex(a=a, start=4, stop=7))


def check_generalised(w: Any, a: Any, b: Any, dtype: DType, itype: int) -> None:
    """Against SciPy in double precision."""
    a, b = wide(a), wide(b)
    want = scipy.linalg.eigh(a, b, type=itype, eigvals_only=True) if len(a) else np.empty(0)
    metric = np.linalg.norm(np.linalg.inv(b) if itype == 1 else b)
    check_same(w, want, dtype, float(np.linalg.norm(a) * metric))


@pytest.mark.parametrize("itype", [1, 2, 3])
@SHARED
@given(data=st.data(), dtype=dtypes(*FLOATS), n=extents, lower=st.booleans(), seed=seeds)
def test_generalised(
    session: Any, itype: Any, data: st.DataObject, dtype: DType, n: int, lower: bool, seed: int
) -> None:
    a, b = hermitian(dtype, (n, n), seed), definite(dtype, (n, n), seed + 1)
    k = range(n)
    b[k, k] += 4 * n
    ref = put(session, one_triangle(a, lower), data.draw(layouts))
    right = put(session, one_triangle(b, lower), data.draw(layouts))
    whole = session.put(np.full(2 * n, 7, dtype.real.np))
    at_w = whole[::2] if data.draw(st.booleans()) else None
    only = session.get(execute(session, SygvdValues(a=ref, b=right, w=at_w, itype=itype, lower=lower)))
    assert (session.get(whole)[1::2] == 7).all()
    check_generalised(only, a, b, dtype, itype)
    op = Sygvd(a=ref, b=right, v=ref if data.draw(st.booleans()) else None, itype=itype, lower=lower)
    result = execute(session, op)
    w, v = exact(session.get(result.w)), exact(session.get(result.v))
    assert (np.diff(w) >= 0).all()
    left, middle = exact(a), exact(b)
    sides = {1: (left @ v, middle @ v * w), 2: (left @ (middle @ v), v * w), 3: (middle @ (left @ v), v * w)}
    norms = float(np.linalg.norm(a) * np.linalg.norm(b)) * float(abs(v).max(initial=0))
    check_same(*sides[itype], dtype, norms)
    metric = middle if itype < 3 else exact(np.linalg.inv(wide(b)))
    check_same(
        adjoint(v) @ metric @ v,
        np.eye(n),
        dtype,
        float(np.linalg.norm(wide(b)) * np.linalg.norm(np.linalg.inv(wide(b)))) if n else 1.0,
    )


@pytest.mark.parametrize("dtype", EVERY)
@pytest.mark.parametrize("itype", [1, 2, 3])
def test_generalised_of_a_larger_one(session: Any, dtype: DType, itype: Any) -> None:
    n = 130
    a, b = hermitian(dtype, (n, n), 5), (definite(dtype, (n, n), 6) + 4 * n * np.eye(n)).astype(dtype.np)
    operands = {"a": session.put(a), "b": session.put(b), "itype": itype}
    check_generalised(session.get(execute(session, SygvdValues(**operands))), a, b, dtype, itype)
    check_generalised(session.get(execute(session, Sygvd(**operands)).w), a, b, dtype, itype)


@SHARED
@given(data=st.data(), dtype=dtypes(*FLOATS), n=extents, seed=seeds)
def test_general(session: Any, data: st.DataObject, dtype: DType, n: int, seed: int) -> None:
    a = values(dtype, (n, n), seed)
    ref = put(session, a, data.draw(layouts))
    result = execute(session, Geev(a=ref))
    w, v = session.get(result.w), session.get(result.v)
    assert w.dtype == v.dtype
    assert w.dtype.kind == "c"
    scale = float(np.linalg.norm(a))
    check_same(exact(a) @ exact(v), exact(v) * exact(w), dtype, scale)
    np.testing.assert_allclose(np.linalg.norm(wide(v), axis=0), 1, rtol=1e-5)
    check_same(np.asarray(w.sum()), np.trace(wide(a)), dtype, scale)
    only = session.get(execute(session, GeevValues(a=ref)))
    check_same(np.asarray(only.sum()), np.trace(wide(a)), dtype, scale)
    check_same(np.asarray((exact(only) ** 2).sum()), np.trace(wide(a) @ wide(a)), dtype, scale**2)


@pytest.mark.parametrize("name", ["f32", "f64"])
def test_conjugate_pairs_stand_side_by_side(session: Any, name: str) -> None:
    dtype = DTYPES[name]
    a = np.zeros((5, 5), dtype.np)
    a[:2, :2] = [[1, -2], [2, 1]]
    a[2, 2] = 3
    a[3:, 3:] = [[0, 5], [-5, 0]]
    result = execute(session, Geev(a=session.put(a)))
    w, v = session.get(result.w), session.get(result.v)
    first = np.flatnonzero(w.imag > 0)
    assert len(first) == 2
    np.testing.assert_array_equal(w[first + 1], w[first].conj())
    np.testing.assert_array_equal(v[:, first + 1], v[:, first].conj())
    check_same(np.sort_complex(w), np.array([-5j, 5j, 1 - 2j, 1 + 2j, 3]), dtype)


@pytest.mark.parametrize("dtype", EVERY)
def test_larger_ones(session: Any, dtype: DType) -> None:
    a = hermitian(dtype, (90, 90), 5)
    result = execute(session, Syevd(a=session.put(a)))
    w, v = session.get(result.w), session.get(result.v)
    check_unitary(v, dtype)
    check_same(exact(a) @ exact(v), exact(v) * w, dtype, float(np.linalg.norm(a)))
    general = values(dtype, (60, 60), 6)
    result = execute(session, Geev(a=session.put(general)))
    w, v = session.get(result.w), session.get(result.v)
    check_same(exact(general) @ exact(v), exact(v) * exact(w), dtype, float(np.linalg.norm(general)))
