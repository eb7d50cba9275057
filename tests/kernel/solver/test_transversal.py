"""The structural rank, against an assignment of the dense matrix, and where searches take long."""

from typing import Any

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment

from callboard.core.errors import NumericalError
from callboard.kernel.solver.transversal import transversal


def of(a: Any, start: Any = None) -> Any:
    return transversal("op", a.indptr, a.indices, a.data, start)


def drawn(n: int, density: float, seed: int) -> np.ndarray[Any, Any]:
    rng = np.random.default_rng(seed)
    return np.where(rng.random((n, n)) < density, rng.integers(0, 3, (n, n)), 0).astype(float)


def with_zeros(a: np.ndarray[Any, Any], seed: int) -> scipy.sparse.csr_array:
    """Some of what is 0 is stored."""
    stored = (a != 0) | (np.random.default_rng(seed).random(a.shape) < 0.2)
    ends = np.concatenate([[0], np.cumsum(stored.sum(axis=1))])
    return scipy.sparse.csr_array((a[stored], np.nonzero(stored)[1], ends), shape=a.shape)


@given(
    n=st.integers(0, 12),
    density=st.floats(0.1, 0.9),
    seed=st.integers(0, 2**32 - 1),
    start=st.none() | st.integers(0, 99),
)
def test_is_as_large_as_can_be(n: int, density: float, seed: int, start: int | None) -> None:
    a = drawn(n, density, seed)
    best = int((a != 0)[linear_sum_assignment(-(a != 0).astype(int))].sum())
    former = None if start is None else np.random.default_rng(start).permutation(n)
    if best < n:
        says = f"op: the matrix is singular: of its elements that are not 0, no more than {best} are in different rows"
        with pytest.raises(NumericalError, match=says) as failed:
            of(with_zeros(a, seed), former)
        assert failed.value.info == n - best
        return
    columns = of(with_zeros(a, seed), former)
    assert sorted(columns) == list(range(n))
    assert a[np.arange(n), columns].all()


def test_what_holds_of_the_start_is_kept() -> None:
    a = scipy.sparse.csr_array(np.ones((5, 5)))
    np.testing.assert_array_equal(of(a), range(5))
    np.testing.assert_array_equal(of(a, np.array([4, 2, 0, 1, 3])), [4, 2, 0, 1, 3])
    a.data[4] = 0  # row 0, column 4
    assert sorted(of(a, np.array([4, 2, 0, 1, 3]))) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("short", [0, 1])
def test_one_path_through_all_rows(short: int) -> None:
    """The only way from the diagonal, which lacks its first element, to a full one is to move every row."""
    n = 2000
    a = scipy.sparse.diags_array([np.r_[0.0, np.ones(n - 1)], np.ones(n - 1)], offsets=[0, 1], format="lil")
    a[n - 1, 0] = 1 - short
    a = scipy.sparse.csr_array(a)
    if short:
        with pytest.raises(NumericalError, match=f"no more than {n - 1} are in different"):
            of(a)
    else:
        np.testing.assert_array_equal(of(a), np.r_[1:n, 0])


def test_a_grid_with_its_rows_and_columns_in_any_order() -> None:
    line = scipy.sparse.diags_array([-1.0, 2, -1], offsets=[-1, 0, 1], shape=(60, 60))
    one = scipy.sparse.eye_array(60)
    a = scipy.sparse.csr_array(scipy.sparse.kron(line, one) + scipy.sparse.kron(one, line))
    rng = np.random.default_rng(1)
    for shuffled in (a[rng.permutation(3600)], a[rng.permutation(3600)][:, rng.permutation(3600)]):
        assert sorted(of(shuffled)) == list(range(3600))
