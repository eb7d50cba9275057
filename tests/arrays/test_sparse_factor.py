"""``dev.solver.sparse_factor``: a sparse matrix, in any order of its entries, to solve with repeatedly."""

from typing import Any
from unittest import mock

import numpy as np
import pytest
import scipy.sparse
import scipy.sparse.linalg

import callboard as cb
from callboard.kernel.sparse import CooRef, CscRef

N = 60
FLAGS = [{}, {"transpose": True}, {"conj": True}, {"transpose": True, "conj": True}]


@pytest.fixture
def solver(session: cb.sync.Device) -> cb.sync.Device:
    """A session that solves sparse systems: on CUDA cuDSS is needed."""
    one = session.put(np.ones(1))
    try:
        session.solver.sparse_factor(session.sparse.from_scipy(scipy.sparse.csr_array(np.eye(1)))).solve(one).get()
    except cb.BackendUnavailable as e:
        pytest.skip(str(e))
    return session


def matrix(dtype: Any, seed: int = 0) -> Any:
    """Not symmetric, regular, with its entries in no order."""
    rng = np.random.default_rng(seed)
    dense = np.where(rng.random((N, N)) < 0.1, rng.normal(size=(N, N)), 0) + 4 * np.eye(N)
    if np.dtype(dtype).kind == "c":
        dense = dense + 1j * np.where(dense, rng.normal(size=(N, N)), 0)
    return dense.astype(dtype)


def coordinates(session: cb.sync.Device, dense: Any) -> CooRef:
    rows, cols = np.nonzero(dense)
    order = np.random.default_rng(1).permutation(rows.size)
    return CooRef(
        session.put(dense[rows, cols][order]),
        session.put(rows[order].astype(np.int32)),
        session.put(cols[order].astype(np.int32)),
        dense.shape,
    )


def op_of(dense: Any, transpose: bool = False, conj: bool = False) -> Any:
    turned = dense.T if transpose else dense
    return turned.conj() if conj else turned


@pytest.mark.usefixtures("solver")
@pytest.mark.parametrize("flags", FLAGS, ids=str)
@pytest.mark.parametrize("dtype", ["f4", "f8", "c8", "c16"])
def test_solves(session: cb.sync.Device, dtype: str, flags: Any) -> None:
    dense = matrix(dtype)
    right = np.random.default_rng(2).normal(size=(N, 3)).astype(dtype)
    tolerance = 1e-3 if np.dtype(dtype).itemsize == 4 or dtype == "c8" else 1e-10
    compressed = scipy.sparse.csc_array(dense)
    unsorted = coordinates(session, dense)
    for a in (unsorted, session.sparse.from_scipy(compressed), session.sparse.from_scipy(compressed.tocsr())):
        factor = session.solver.sparse_factor(a)
        assert factor.shape == (N, N)
        for b in (right, right[:, 0]):
            found = factor.solve(session.put(b), **flags).get()
            np.testing.assert_allclose(op_of(dense, **flags) @ found, b, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("flags", FLAGS, ids=str)
@pytest.mark.parametrize("dtype", ["f8", "c16"])
def test_cholesky(session: cb.sync.Device, dtype: str, flags: Any) -> None:
    half = matrix(dtype)
    dense = half @ half.conj().T + np.eye(N)
    b = np.random.default_rng(2).normal(size=N).astype(dtype)
    factor = session.solver.sparse_factor(session.sparse.from_scipy(scipy.sparse.csr_array(dense)), method="cholesky")
    found = factor.solve(session.put(b), **flags).get()
    np.testing.assert_allclose(op_of(dense, **flags) @ found, b, atol=1e-8)


@pytest.mark.usefixtures("solver")
def test_rows_of_a_column_in_no_order(session: cb.sync.Device) -> None:
    dense = matrix("f8")
    a = scipy.sparse.csc_array(dense)
    backwards = [slice(*bounds) for bounds in zip(a.indptr, a.indptr[1:], strict=False)]
    values, rows = (np.concatenate([one[part][::-1] for part in backwards]) for one in (a.data, a.indices))
    arrays = (values, rows.astype(np.int32), a.indptr.astype(np.int32))
    ref = CscRef(*map(session.put, arrays), (N, N))
    found = session.solver.sparse_factor(ref).solve(session.put(np.ones(N))).get()
    np.testing.assert_allclose(dense @ found, np.ones(N), atol=1e-10)


@pytest.mark.usefixtures("solver")
def test_a_later_write_does_not_matter(session: cb.sync.Device) -> None:
    dense = matrix("f8")
    a = session.sparse.from_scipy(scipy.sparse.csr_array(dense))
    factor = session.solver.sparse_factor(a)
    a.values[...] = 0.0
    np.testing.assert_allclose(dense @ factor.solve(session.put(np.ones(N))).get(), np.ones(N), atol=1e-10)


def test_the_cpu_factors_once(session: cb.sync.Device) -> None:
    if session.backend != "cpu":
        pytest.skip("what the CPU does")
    dense, other = matrix("f8", seed=3), matrix("f8", seed=5)
    splu = mock.Mock(wraps=scipy.sparse.linalg.splu)
    with mock.patch.object(scipy.sparse.linalg, "splu", splu):
        first, second = (
            session.solver.sparse_factor(session.sparse.from_scipy(scipy.sparse.csr_array(one)))
            for one in (dense, other)
        )
        b = session.put(np.ones(N))
        for _ in range(3):
            for transpose in (False, True):
                first.solve(b, transpose=transpose).get()
                first.solve(session.put(np.ones((N, 2))), transpose=transpose).get()
        assert splu.call_count == 2, "one for the matrix, one for its transpose"
        second.solve(b).get()
        found = first.solve(b).get()
        assert splu.call_count == 4
        np.testing.assert_allclose(dense @ found, np.ones(N), atol=1e-10)


@pytest.mark.usefixtures("solver")
def test_a_singular_matrix_is_refused_each_time(session: cb.sync.Device) -> None:
    factor = session.solver.sparse_factor(session.sparse.from_scipy(scipy.sparse.csr_array(np.diag([1.0, 0.0, 2.0]))))
    for _ in range(2):
        with pytest.raises(cb.NumericalError):
            factor.solve(session.put(np.ones(3))).get()


def test_what_does_not_fit(session: cb.sync.Device) -> None:
    square = session.sparse.from_scipy(scipy.sparse.csr_array(np.eye(3)))
    with pytest.raises(cb.ShapeError, match="method is 'ldl'"):
        session.solver.sparse_factor(square, method="ldl")  # type: ignore[arg-type]
    with pytest.raises(cb.ShapeError, match="must be square"):
        session.solver.sparse_factor(session.sparse.from_scipy(scipy.sparse.csr_array(np.ones((2, 3)))))
    factor = session.solver.sparse_factor(square)
    assert repr(factor) == "<SparseFactor of f64[3, 3] by lu>"
    with pytest.raises(cb.ShapeError):
        factor.solve(session.put(np.ones(4)))
