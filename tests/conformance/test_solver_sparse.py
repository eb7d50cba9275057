"""Sparse direct solves."""

from typing import Any

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given
from solver_lab import FLOATS, SHARED, check_residual, dtypes, execute, layouts, put, seeds, st, values

from callboard.core.dtype import DTYPES, DType
from callboard.core.errors import BackendUnavailable, NumericalError, ShapeError
from callboard.kernel.solver import SparseCholesky, SparseLu, SparseQr
from callboard.kernel.sparse.formats import CsrRef

EVERY = [pytest.param(DTYPES[name], id=name) for name in FLOATS]
OPS = [pytest.param(op, id=op.__name__) for op in (SparseLu, SparseQr, SparseCholesky)]
GENERAL = OPS[:2]
"""Those that take any regular matrix."""
indices = st.sampled_from([np.int32, np.int64])


@pytest.fixture
def no_lu(session: Any) -> str | None:
    """Why there is no LU: on CUDA it is cuDSS's."""
    one = scipy.sparse.csr_array(np.eye(1))
    try:
        execute(session, SparseLu(a=put_sparse(session, one), b=session.put(np.ones(1))))
    except BackendUnavailable as e:
        return str(e)
    return None


@pytest.fixture
def lu(session: Any, no_lu: str | None) -> Any:
    """A session that has it."""
    if no_lu is not None:
        pytest.skip(no_lu)
    return session


def needs(op: Any, no_lu: str | None) -> None:
    if op is SparseLu and no_lu is not None:
        pytest.skip(no_lu)


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
    session: Any,
    no_lu: str | None,
    op: Any,
    data: st.DataObject,
    dtype: DType,
    n: int,
    k: int | None,
    index: Any,
    seed: int,
) -> None:
    needs(op, no_lu)
    a = sparse(dtype, n, seed, op is SparseCholesky)
    b = values(dtype, (n,) if k is None else (n, k), seed + 1)
    right = session.put(b) if k is None else put(session, b, data.draw(layouts))
    x = execute(session, op(a=put_sparse(session, a, index), b=right, x=right if data.draw(st.booleans()) else None))
    check_residual(a.toarray(), session.get(x), b, dtype)


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("dtype", EVERY)
def test_a_larger_one(session: Any, no_lu: str | None, op: Any, dtype: DType) -> None:
    needs(op, no_lu)
    a = sparse(dtype, 150, 3, op is SparseCholesky)
    b = values(dtype, (150,), 4)
    check_residual(a.toarray(), session.get(execute(session, op(a=put_sparse(session, a), b=session.put(b)))), b, dtype)


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("dtype", EVERY)
def test_singular(session: Any, no_lu: str | None, op: Any, dtype: DType) -> None:
    needs(op, no_lu)
    a = np.diag(np.array([1, 2, 0, 3], dtype.np))
    a = scipy.sparse.csr_array((a[range(4), range(4)], range(4), range(5)), shape=(4, 4))  # with a stored zero
    says = "not positive definite" if op is SparseCholesky else "the matrix is singular"
    with pytest.raises(NumericalError, match=says):
        execute(session, op(a=put_sparse(session, a), b=session.put(np.ones(4, dtype.np))))


SINGULAR = {
    "a zero on the diagonal": [[1, 0, 0], [0, 0, 0], [0, 0, 3]],
    "of rank 1": [[1, 2, 3], [2, 4, 6], [3, 6, 9]],
    "two equal rows": [[0, 1, 0], [0, 1, 0], [1, 0, 2]],
    "an empty column": [[1, 0, 1], [2, 0, 1], [3, 0, 1]],
    "nothing stored": [[0, 0, 0], [0, 0, 0], [0, 0, 0]],
}


@pytest.mark.parametrize("which", SINGULAR)
@pytest.mark.parametrize("solvable", [False, True])
@pytest.mark.parametrize("dtype", EVERY)
def test_singular_whatever_is_asked_for(lu: Any, dtype: DType, solvable: bool, which: str) -> None:
    """Also where some vector would satisfy the system."""
    a = np.array(SINGULAR[which], dtype.np)
    b = (a @ np.ones(3) if solvable else np.array([1, 2, 4])).astype(dtype.np)
    with pytest.raises(NumericalError, match="singular"):
        execute(lu, SparseLu(a=put_sparse(lu, scipy.sparse.csr_array(a)), b=lu.put(b)))


def shuffled(dtype: DType, n: int, k: int, seed: int) -> tuple[Any, Any]:
    """A regular matrix, and one that is singular for where its zeros are, which nobody sees.

    ``k`` rows of the other one (or columns) have elements in the same ``k - 1`` columns (rows) only; it is 0 where the
    regular one is. Rows and columns are in any order.
    """
    rng = np.random.default_rng(seed)
    regular = sparse(dtype, n, seed, False).toarray()
    regular[:k, :k] += (regular[:k, :k] == 0).astype(dtype.np)
    regular[range(n), range(n)] = abs(regular).sum(axis=1) + 1
    singular = regular.copy()
    singular[:k, k - 1 :] = 0
    rows, columns = rng.permutation(n), rng.permutation(n)
    pair = [a.T if seed % 2 else a for a in (regular, singular)]
    return pair[0][rows][:, columns], pair[1][rows][:, columns]


def with_zeros(a: Any, where: Any) -> Any:
    """With all elements stored that are not 0 in ``where``."""
    stored = where != 0
    ends = np.concatenate([[0], np.cumsum(stored.sum(axis=1))])
    return scipy.sparse.csr_array((a[stored], np.nonzero(stored)[1], ends), shape=a.shape)


@pytest.mark.parametrize("op", GENERAL)
@SHARED
@given(
    dtype=dtypes(*FLOATS),
    n=st.integers(2, 30),
    k=st.integers(1, 4),
    seed=seeds,
    stored=st.booleans(),
    solvable=st.booleans(),
    before=st.booleans(),
)
def test_singular_for_where_its_zeros_are(
    session: Any, no_lu: str | None, op: Any, dtype: DType, n: int, k: int, seed: int, **how: bool
) -> None:
    """With its zeros stored and not, with solutions and without, after a regular matrix of the same pattern and not."""
    needs(op, no_lu)
    regular, singular = shuffled(dtype, n, min(k, n), seed)
    b = (singular @ np.ones((n, 2)) if how["solvable"] else values(dtype, (n, 2), seed)).astype(dtype.np)
    right = session.put(b)
    if how["before"]:
        x = execute(session, op(a=put_sparse(session, scipy.sparse.csr_array(regular)), b=right))
        check_residual(regular, session.get(x), b, dtype)
    a = with_zeros(singular, regular if how["stored"] else singular)
    says = f"the matrix is singular: of its elements that are not 0, no more than {n - 1} are in different rows"
    with pytest.raises(NumericalError, match=says) as failed:
        execute(session, op(a=put_sparse(session, a), b=right))
    assert failed.value.info == 1


@pytest.mark.parametrize("op", GENERAL)
@SHARED
@given(dtype=dtypes(*FLOATS), n=st.integers(2, 30), seed=seeds, many=st.lists(st.floats(0, 1), max_size=4))
def test_zeros_that_do_no_harm(
    session: Any, no_lu: str | None, op: Any, dtype: DType, n: int, seed: int, many: list[float]
) -> None:
    """Always of the same pattern, always others of its elements are 0; none on a diagonal that nobody sees."""
    needs(op, no_lu)
    regular, _ = shuffled(dtype, n, 1, seed)
    largest = abs(regular) == abs(regular).max(axis=1 - seed % 2, keepdims=True)
    rng, b = np.random.default_rng(seed), values(dtype, (n,), seed)
    for most in (0.0, *many):
        a = np.where(largest | (rng.random((n, n)) > most), regular, 0)
        x = execute(session, op(a=put_sparse(session, with_zeros(a, regular)), b=session.put(b)))
        check_residual(a, session.get(x), b, dtype)


@SHARED
@given(dtype=dtypes(*FLOATS), n=st.integers(1, 12), seed=seeds, stored=st.booleans(), before=st.booleans())
def test_not_positive_definite_for_a_zero_on_the_diagonal(
    session: Any, dtype: DType, n: int, seed: int, stored: bool, before: bool
) -> None:
    """Whatever else its row and column have."""
    regular = sparse(dtype, n, seed, True).toarray()
    a, k = regular.copy(), seed % n
    a[k, k] = 0
    if seed % 3:
        a[k] = a[:, k] = 0
    b = session.put((a @ np.ones(n)).astype(dtype.np))
    if before:
        execute(session, SparseCholesky(a=put_sparse(session, scipy.sparse.csr_array(regular)), b=b))
    a = with_zeros(a, regular if stored else a)
    with pytest.raises(NumericalError, match="the matrix is not positive definite"):
        execute(session, SparseCholesky(a=put_sparse(session, a), b=b))


@SHARED
@given(dtype=dtypes(*FLOATS), n=st.integers(2, 40), k=st.integers(1, 3), seed=seeds)
def test_pivots_that_are_not_on_the_diagonal(lu: Any, dtype: DType, n: int, k: int, seed: int) -> None:
    a = sparse(dtype, n, seed, False).toarray()
    rng = np.random.default_rng(seed)
    a = scipy.sparse.csr_array(a[rng.permutation(n)])  # dominant elsewhere
    b = values(dtype, (n, k), seed + 1)
    x = execute(lu, SparseLu(a=put_sparse(lu, a), b=lu.put(b)))
    check_residual(a.toarray(), lu.get(x), b, dtype)


@SHARED
@given(dtype=dtypes(*FLOATS), n=st.integers(1, 20), m=st.integers(1, 8), seed=seeds)
def test_a_block_of_zeros(lu: Any, dtype: DType, n: int, m: int, seed: int) -> None:
    """A saddle point, whose diagonal is no pivot at all."""
    m = min(m, n)
    top, side = sparse(dtype, n, seed, True).toarray(), values(dtype, (n, m), seed + 1) + 4 * np.eye(n, m)
    side = side.astype(dtype.np)
    a = scipy.sparse.csr_array(np.block([[top, side], [side.conj().T, np.zeros((m, m), dtype.np)]]))
    b = values(dtype, (n + m,), seed + 2)
    x = execute(lu, SparseLu(a=put_sparse(lu, a), b=lu.put(b)))
    check_residual(a.toarray(), lu.get(x), b, dtype)


@pytest.mark.parametrize("op", OPS)
@SHARED
@given(dtype=dtypes(*FLOATS), n=st.integers(1, 10), seed=seeds, kinds=st.lists(st.integers(0, 3), max_size=5))
def test_one_after_the_other(
    session: Any, no_lu: str | None, op: Any, dtype: DType, n: int, seed: int, kinds: list[int]
) -> None:
    """The same matrix, the same pattern, another pattern of as many elements, a singular matrix in between."""
    needs(op, no_lu)
    a = sparse(dtype, n, seed, op is SparseCholesky)
    for i, kind in enumerate([0, *kinds]):
        if kind == 1:
            a = a * dtype.np.type(1 + i)
        elif kind == 2:
            turned = np.arange(n)[::-1]
            a = scipy.sparse.csr_array(a.toarray()[turned][:, turned])
        elif kind == 3:
            zero = scipy.sparse.csr_array((a.data * 0, a.indices, a.indptr), shape=a.shape)
            with pytest.raises(NumericalError):
                execute(session, op(a=put_sparse(session, zero), b=session.put(np.ones(n, dtype.np))))
        b = values(dtype, (n, 1 + i % 3) if i % 2 else (n,), seed + i)
        check_residual(
            a.toarray(), session.get(execute(session, op(a=put_sparse(session, a), b=session.put(b)))), b, dtype
        )


@pytest.mark.parametrize("dtype", EVERY)
def test_badly_conditioned(lu: Any, dtype: DType) -> None:
    """Rows of very different sizes, and a matrix of small numbers: the residual is small all the same."""
    n, eps = 30, float(np.finfo(dtype.real.np).eps)
    a = sparse(dtype, n, 8, False).toarray() * np.logspace(0, np.log10(eps) / 2, n)[:, None]
    a = scipy.sparse.csr_array(a.astype(dtype.np))
    b = values(dtype, (n,), 9)
    check_residual(a.toarray(), lu.get(execute(lu, SparseLu(a=put_sparse(lu, a), b=lu.put(b)))), b, dtype)
    tiny = scipy.sparse.csr_array((sparse(dtype, n, 8, False) * 1e-20).astype(dtype.np))
    b = (values(dtype, (n,), 9) * 1e-18).astype(dtype.np)
    x = lu.get(execute(lu, SparseLu(a=put_sparse(lu, tiny), b=lu.put(b))))
    check_residual(tiny.toarray() * dtype.np.type(1e20), x, b * dtype.np.type(1e20), dtype)


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("dtype", EVERY)
def test_numbers_whose_products_are_too_large(session: Any, no_lu: str | None, op: Any, dtype: DType) -> None:
    """The largest element of the matrix times the largest of the solution is none."""
    needs(op, no_lu)
    largest = float(np.finfo(dtype.real.np).max)
    a = np.diag([largest**0.3, largest**-0.3, 1]).astype(dtype.np)
    b = np.array([largest**0.3, largest**0.45, 1]).astype(dtype.np)
    x = session.get(execute(session, op(a=put_sparse(session, scipy.sparse.csr_array(a)), b=session.put(b))))
    np.testing.assert_allclose(x, [1, largest**0.75, 1], rtol=1e-4)


@pytest.mark.parametrize("dtype", EVERY)
def test_what_cholesky_does_not_take(session: Any, dtype: DType) -> None:
    b = session.put(np.ones(2, dtype.np))
    indefinite = scipy.sparse.csr_array(np.array([[1, 2], [2, 1]], dtype.np))
    with pytest.raises(NumericalError, match="not positive definite"):
        execute(session, SparseCholesky(a=put_sparse(session, indefinite), b=b))
    rounded = scipy.sparse.csr_array(np.array([[4, 1], [1 + 4 * np.finfo(dtype.np).eps, 4]], dtype.np))
    x = session.get(execute(session, SparseCholesky(a=put_sparse(session, rounded), b=b)))
    np.testing.assert_allclose(x, [0.2, 0.2], rtol=1e-5)
    for lopsided in ([[4, 1], [2, 4]], [[4, 1], [0, 4]], [[4, 1], [1.01, 4]]):
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
def test_what_is_no_matrix(session: Any, no_lu: str | None, op: Any, offsets: Any, places: Any, index: Any) -> None:
    needs(op, no_lu)
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
def test_what_is_not_finite(session: Any, no_lu: str | None, op: Any) -> None:
    needs(op, no_lu)
    a = scipy.sparse.csr_array(np.diag([1.0, np.nan, 2]))
    with pytest.raises(NumericalError, match="1 element of the operands is NaN or infinite"):
        execute(session, op(a=put_sparse(session, a), b=session.put(np.ones(3))))


@pytest.mark.parametrize("op", OPS)
def test_refused_at_the_call(session: Any, no_lu: str | None, op: Any) -> None:
    needs(op, no_lu)
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
