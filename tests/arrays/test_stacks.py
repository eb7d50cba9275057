"""Stacks of matrices in few ops, and least squares, against NumPy."""

from typing import Any

import numpy as np
import pytest

import callboard as cb

Array = np.ndarray[Any, Any]
SHAPES = [(20, 4, 4), (20, 6, 3), (30, 3, 6), (2, 8, 5, 5), (3, 5, 5), (7, 1, 1), (3, 0, 0), (0, 3, 3)]


def drawn(shape: tuple[int, ...], dtype: str) -> Array:
    rng = np.random.default_rng(len(shape))
    values = rng.normal(size=shape) + (1j * rng.normal(size=shape) if dtype.startswith("c") else 0)
    made: Array = values.astype(dtype)
    return made


def calls(device: cb.sync.Device) -> int:
    device.drain()
    plans = device.stats().plans.get("solver")
    return 0 if plans is None else plans.hits + plans.misses


@pytest.mark.few(2)
@pytest.mark.parametrize("dtype", ["f4", "f8", "c8", "c16"])
def test_factors_of_stacks(session: cb.sync.Device, dtype: str) -> None:
    linalg = session.xp.linalg
    close: Any = {"rtol": 3e-4, "atol": 3e-4} if dtype in ("f4", "c8") else {"rtol": 1e-9, "atol": 1e-9}
    for shape in SHAPES:
        a = drawn(shape, dtype)
        x = session.put(a)
        for mode in ("reduced", "complete"):
            q, r = (one.get() for one in linalg.qr(x, mode=mode))
            assert (q.shape, r.shape) == tuple(one.shape for one in np.linalg.qr(a, mode=mode)), (shape, mode)
            np.testing.assert_allclose(q @ r, a, **close)
            np.testing.assert_allclose(np.tril(r, -1), 0)
            np.testing.assert_allclose(
                q.conj().swapaxes(-1, -2) @ q, np.zeros_like(q[..., :1, :]) + np.eye(q.shape[-1]), **close
            )
        for full in (True, False):
            u, s, vh = (one.get() for one in linalg.svd(x, full_matrices=full))
            host = np.linalg.svd(a, full_matrices=full)
            assert (u.shape, s.shape, vh.shape) == tuple(one.shape for one in host)
            np.testing.assert_allclose(s, host.S, **close)
            k = s.shape[-1]
            np.testing.assert_allclose(u[..., :k] * s[..., None, :] @ vh[..., :k, :], a, **close)
        np.testing.assert_allclose(linalg.svdvals(x).get(), host.S, **close)
        if shape[-1] == shape[-2]:
            np.testing.assert_allclose(linalg.det(x).get(), np.linalg.det(a), **close)
            sign, size = (one.get() for one in linalg.slogdet(x))
            np.testing.assert_allclose(sign, np.linalg.slogdet(a)[0], **close)
            np.testing.assert_allclose(size, np.linalg.slogdet(a)[1], **close)
            hermitian = a + a.conj().swapaxes(-1, -2)
            found = linalg.eigvalsh(session.put(hermitian)).get()
            np.testing.assert_allclose(found, np.linalg.eigvalsh(hermitian), **close)


@pytest.mark.parametrize("dtype", ["f4", "f8", "c8", "c16", "i4"])
def test_eigenvalues_of_any_square_matrices(session: cb.sync.Device, dtype: str) -> None:
    linalg = session.xp.linalg
    close: Any = {"rtol": 2e-3, "atol": 2e-3} if dtype in ("f4", "c8") else {"rtol": 1e-9, "atol": 1e-9}
    for shape in ((4, 4), (3, 2, 5, 5), (0, 3, 3)):
        a = drawn(shape, dtype) if dtype != "i4" else (drawn(shape, "f8") * 9).astype(dtype)
        x = session.put(a)
        w, v = (one.get() for one in linalg.eig(x))
        assert (w.shape, v.shape, w.dtype) == (shape[:-1], shape, np.dtype("c8" if dtype in ("f4", "c8") else "c16"))
        assert w.dtype == v.dtype
        np.testing.assert_allclose(a @ v, v * w[..., None, :], **close)
        np.testing.assert_allclose(np.sort_complex(linalg.eigvals(x).get()), np.sort_complex(w), **close)
    with pytest.raises(cb.ShapeError, match=r"xp\.linalg\.eig: x is f64\[2, 3\]"):
        linalg.eig(session.put(np.ones((2, 3))))


def test_numpys_names_of_the_solver(session: cb.sync.Device) -> None:
    solver, a, b = session.solver, drawn((5, 5), "f8"), drawn((5,), "f8")
    x, p = session.put(a), session.put(a @ a.T)
    np.testing.assert_allclose(solver.inv(x).get(), np.linalg.inv(a), rtol=1e-9)
    np.testing.assert_allclose(solver.det(x).get(), np.linalg.det(a), rtol=1e-9)
    np.testing.assert_allclose(solver.eigh(p).w.get(), np.linalg.eigvalsh(a @ a.T), rtol=1e-9)
    w, v = (one.get() for one in solver.eig(x))
    np.testing.assert_allclose(a @ v, v * w, rtol=1e-9, atol=1e-9)
    tall = drawn((5, 3), "f8")
    np.testing.assert_allclose(solver.lstsq(session.put(tall), session.put(b)).get(), np.linalg.lstsq(tall, b)[0])


def test_a_stack_takes_no_op_of_the_solver_for_each_matrix(session: cb.sync.Device) -> None:
    linalg = session.xp.linalg
    x = session.put(drawn((40, 5, 5), "f8"))
    for function in (linalg.qr, linalg.svd, linalg.svdvals, linalg.det, linalg.slogdet, linalg.eigh, linalg.eigvalsh):
        before = calls(session)
        function(x)
        assert calls(session) - before == 1, function.__name__


def test_determinants_of_singular_matrices(session: cb.sync.Device) -> None:
    linalg = session.xp.linalg
    x = session.put(np.zeros((6, 3, 3)))
    assert not linalg.det(x).get().any()
    sign, size = linalg.slogdet(x)
    assert not sign.get().any()
    assert np.isneginf(size.get()).all()


@pytest.mark.parametrize("m, n", [(0, 3), (3, 0), (0, 0)])
@pytest.mark.parametrize("columns", [(), (2,), (0,)])
def test_least_squares_without_rows_or_columns(
    session: cb.sync.Device, m: int, n: int, columns: tuple[int, ...]
) -> None:
    a, b = np.ones((m, n)), np.arange(1.0, 1 + m * int(np.prod(columns))).reshape(m, *columns)
    found = session.xp.linalg.lstsq(session.put(a), session.put(b))
    x, _, rank, s = np.linalg.lstsq(a, b)
    assert np.array_equal(found.x.get(), x)
    assert np.array_equal(found.singular_values.get(), s)
    assert found.rank.item() == rank == 0
    assert np.array_equal(found.residuals.get(), np.atleast_1d(np.square(b).sum(0)))
    stack = session.xp.linalg.lstsq(session.put(np.ones((2, m, n))), session.put(np.ones((2, m, 4))))
    assert [each.shape for each in stack] == [(2, n, 4), (2, 4), (2,), (2, 0)]


@pytest.mark.parametrize("m, n, rank", [(9, 4, 4), (4, 9, 4), (6, 6, 2), (5, 5, 5)])
def test_least_squares(session: cb.sync.Device, m: int, n: int, rank: int) -> None:
    a = drawn((m, rank), "f8") @ drawn((rank, n), "f8")
    b = drawn((m, 3), "f8")
    found = session.xp.linalg.lstsq(session.put(a), session.put(b))
    x, residuals, of_numpy, s = np.linalg.lstsq(a, b)
    np.testing.assert_allclose(found.x.get(), x, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(found.residuals.get(), np.square(a @ x - b).sum(0), rtol=1e-7, atol=1e-9)
    assert found.rank.item() == of_numpy == rank
    np.testing.assert_allclose(found.singular_values.get(), s, rtol=1e-7, atol=1e-9)
    if residuals.size:
        np.testing.assert_allclose(found.residuals.get(), residuals, rtol=1e-7)
    one = session.xp.linalg.lstsq(session.put(a), session.put(b[:, 0]))
    np.testing.assert_allclose(one.x.get(), x[:, 0], rtol=1e-7, atol=1e-9)
    stack = session.xp.linalg.lstsq(session.put(np.stack([a, 2 * a])), session.put(b))
    np.testing.assert_allclose(stack.x.get()[1], x / 2, rtol=1e-7, atol=1e-9)
    with pytest.raises(cb.ShapeError, match="the rows differ"):
        session.xp.linalg.lstsq(session.put(a), session.put(b[1:]))
