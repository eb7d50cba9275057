"""Sparse direct solves."""

from typing import Any

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given
from solver_lab import FLOATS, SHARED, check_residual, dtypes, execute, layouts, put, seeds, st, values

from callboard.core.dtype import DTYPES, DType
from callboard.core.errors import NumericalError, ShapeError
from callboard.kernel.solver import SparseCholesky, SparseLu, SparseQr
from callboard.kernel.sparse.formats import CsrRef

EVERY = [pytest.param(DTYPES[name], id=name) for name in FLOATS]
OPS = [pytest.param(op, id=op.__name__) for op in (SparseLu, SparseQr, SparseCholesky)]
indices = st.sampled_from([np.int32, np.int64])


def sparse(dtype: DType, n: int, seed: int, hermitian: bool) -> Any:
    """Diagonally dominant, so regular and, where Hermitian, positive definite."""
    a = values(dtype, (n, n), seed)
    a *= np.random.default_rng(seed).random((n, n)) < 0.3
    if hermitian:
        a = (a + a.conj().T).astype(dtype.np)
    k = range(n)
    a[k, k] = abs(a).sum(axis=1) + 1
    return scipy.sparse.csr_array(a)


def put_sparse(session: Any, a: Any, index: Any = np.int32) -> CsrRef:
    return CsrRef(
        values=session.put(a.data),
        indices=session.put(a.indices.astype(index)),
        indptr=session.put(a.indptr.astype(index)),
        shape=a.shape,
    )


@pytest.mark.parametrize("op", OPS)
@SHARED
@given(
    data=st.data(),
    dtype=dtypes(*FLOATS),
    n=st.integers(0, 12),
    k=st.sampled_from([None, 0, 1, 3]),
    index=indices,
    seed=seeds,
)
def test_solves(
    session: Any, op: Any, data: st.DataObject, dtype: DType, n: int, k: int | None, index: Any, seed: int
) -> None:
    if op is SparseLu and session.backend.name == "cuda":
        pytest.skip("cuSOLVER factors sparse matrices by LU on the host only")
    a = sparse(dtype, n, seed, op is SparseCholesky)
    b = values(dtype, (n,) if k is None else (n, k), seed + 1)
    right = session.put(b) if k is None else put(session, b, data.draw(layouts))
    x = execute(session, op(a=put_sparse(session, a, index), b=right, x=right if data.draw(st.booleans()) else None))
    check_residual(a.toarray(), session.get(x), b, dtype)


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("dtype", EVERY)
def test_a_larger_one(session: Any, op: Any, dtype: DType) -> None:
    a = sparse(dtype, 150, 3, op is SparseCholesky)
    b = values(dtype, (150,), 4)
    check_residual(a.toarray(), session.get(execute(session, op(a=put_sparse(session, a), b=session.put(b)))), b, dtype)


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("dtype", EVERY)
def test_singular(session: Any, op: Any, dtype: DType) -> None:
    a = np.diag(np.array([1, 2, 0, 3], dtype.np))
    a = scipy.sparse.csr_array((a[range(4), range(4)], range(4), range(5)), shape=(4, 4))  # with a stored zero
    says = "positive definite|singular" if op is SparseCholesky else "the matrix is singular"
    with pytest.raises(NumericalError, match=says):
        execute(session, op(a=put_sparse(session, a), b=session.put(np.ones(4, dtype.np))))


@pytest.mark.parametrize("dtype", EVERY)
def test_what_cholesky_does_not_take(session: Any, dtype: DType) -> None:
    b = session.put(np.ones(2, dtype.np))
    indefinite = scipy.sparse.csr_array(np.array([[1, 2], [2, 1]], dtype.np))
    with pytest.raises(NumericalError, match="not positive definite"):
        execute(session, SparseCholesky(a=put_sparse(session, indefinite), b=b))
    for lopsided in ([[4, 1], [2, 4]], [[4, 1], [0, 4]]):
        a = scipy.sparse.csr_array(np.array(lopsided, dtype.np))
        with pytest.raises(NumericalError, match="not symmetric or Hermitian"):
            execute(session, SparseCholesky(a=put_sparse(session, a), b=b))


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize(
    "offsets, places",
    [
        ([0, 1, 2, 3], [0, 1, 3]),
        ([0, 1, 2, 3], [0, -1, 2]),
        ([0, 2, 1, 3], [0, 1, 2]),
        ([0, 1, 2, 2], [0, 1, 2]),
        ([1, 1, 2, 3], [0, 1, 2]),
        ([0, 1, 2, 99], [0, 1, 2]),
        ([0, 0, 0, 3], [0, 2, 1]),
        ([0, 0, 0, 3], [0, 1, 1]),
        ([0, -5, 2, 3], [0, 1, 2]),
    ],
)
@pytest.mark.parametrize("index", [np.int32, np.int64])
def test_what_is_no_matrix(session: Any, op: Any, offsets: Any, places: Any, index: Any) -> None:
    with pytest.raises(NumericalError, match="of the offsets and indices are out of range"):
        execute(
            session,
            op(
                a=CsrRef(
                    values=session.put(np.ones(3)),
                    indices=session.put(np.array(places, index)),
                    indptr=session.put(np.array(offsets, index)),
                    shape=(3, 3),
                ),
                b=session.put(np.ones(3)),
            ),
        )


@pytest.mark.parametrize("op", OPS)
def test_what_is_not_finite(session: Any, op: Any) -> None:
    a = scipy.sparse.csr_array(np.diag([1.0, np.nan, 2]))
    with pytest.raises(NumericalError, match="1 element of the operands is NaN or infinite"):
        execute(session, op(a=put_sparse(session, a), b=session.put(np.ones(3))))


@pytest.mark.parametrize("op", OPS)
def test_refused_at_the_call(session: Any, op: Any) -> None:
    a = scipy.sparse.csr_array(np.eye(3))
    half, wide = a.astype(np.float32), scipy.sparse.csr_array(np.ones((3, 4)))
    b = session.put(np.ones(3))
    for matrix, right, says in (
        (a, session.put(np.ones(2)), r"b is f64\[2\]; it must be \[3\]"),
        (half, b, "both must have one dtype"),
        (wide, b, r"a.shape is \(3, 4\); it must be square"),
    ):
        with pytest.raises(ShapeError, match=says):
            session.submit(op(a=put_sparse(session, matrix), b=right))
