"""Plans of the sparse direct solves: SciPy's SuperLU for all of them.

SciPy has neither a sparse QR nor a sparse Cholesky. A square system has one solution however it is found; and LU with
pivots taken from the diagonal in a symmetric order has positive pivots if and only if the matrix is positive definite.

The last factorisations are kept: a system with the same matrix is only substituted.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from callboard.backends.cpu.solver.lapack import Array, check_finite, outputs, tag_of
from callboard.backends.cpu.views import viewer
from callboard.core.errors import NumericalError
from callboard.kernel.solver import SparseCholesky, SparseLu, SparseQr
from callboard.kernel.solver.failures import (
    bad_indices,
    hermitian_tolerance,
    not_hermitian,
    sparse_indefinite,
    sparse_singular,
)
from callboard.kernel.solver.transversal import transversal

__all__ = ["Kept", "cholesky", "solve"]

Plan = Callable[..., None]


KEPT = 2
"""Factorisations: of a matrix, and of its transpose."""


class Kept:
    """The last factorisations of a library, with copies of the matrices."""

    def __init__(self) -> None:
        self._found: list[tuple[Any, tuple[Array, ...], Any]] = []

    def factors(self, how: Any, arrays: tuple[Array, ...], make: Callable[[], Any]) -> Any:
        """Return the factors of the same matrix by the same method; computed and cached if absent."""
        for at, (other, of, factors) in enumerate(self._found):
            if other is how and all(map(np.array_equal, of, arrays)) and of[0].dtype == arrays[0].dtype:
                self._found.append(self._found.pop(at))
                return factors
        factors = make()
        self._found = [*self._found[1 - KEPT :], (how, arrays, factors)]
        return factors


def _matrix(tag: str, values: Array, offsets: Array, indices: Array) -> Any:
    """The checked matrix, by columns."""
    from scipy.sparse import csr_array

    n, count = len(offsets) - 1, len(values)
    starts = np.diff(offsets)
    bad = int(offsets[0] != 0) + int(offsets[-1] != count) + int(np.count_nonzero(starts < 0))
    bad += int(np.count_nonzero((indices < 0) | (indices >= n)))
    if not bad:
        first = np.zeros(count, bool)
        first[offsets[:-1][starts > 0]] = True
        bad = int(np.count_nonzero((np.diff(indices, prepend=-1) <= 0) & ~first))
    if bad:
        raise bad_indices(tag, bad, "offsets and indices")
    return csr_array((values, indices, offsets), shape=(n, n)).tocsc()


def _factored(failure: NumericalError, matrix: Any, **options: Any) -> Any:
    from scipy.sparse.linalg import splu

    try:
        return splu(matrix, **options)
    except RuntimeError as e:
        raise failure from e


def _solving(kept: Kept, op: SparseLu | SparseQr | SparseCholesky, factored: Callable[[str, Any], Any]) -> Plan:
    tag = tag_of(op)
    views = [viewer(x.layout) for x in (op.a.values, op.a.indices, op.a.indptr)]
    view_b = viewer(op.b.layout)
    (view_x,) = outputs(op, "x")

    def work(a: list[int], b: int, x: int) -> None:
        numbers, places, starts = (np.array(view(at)) for view, at in zip(views, a, strict=True))
        right = np.array(view_b(b))
        check_finite(tag, numbers, right)
        if not right.size:
            _matrix(tag, numbers, starts, places)
            return
        arrays = numbers, places, starts
        factors = kept.factors(factored, arrays, lambda: factored(tag, _matrix(tag, numbers, starts, places)))
        view_x(x)[...] = factors.solve(right)

    return work


def solve(kept: Kept, op: SparseLu | SparseQr) -> Plan:
    """Called with ``(a, b, x)``."""
    return _solving(kept, op, _regular)


def cholesky(kept: Kept, op: SparseCholesky) -> Plan:
    """Called with ``(a, b, x)``."""
    return _solving(kept, op, _definite)


def _regular(tag: str, matrix: Any) -> Any:
    transversal(tag, matrix.indptr, matrix.indices, matrix.data)
    return _factored(sparse_singular(tag, 0), matrix)


def _definite(tag: str, matrix: Any) -> Any:
    differences = abs(matrix - matrix.conj().T).tocoo()
    diagonal = np.sqrt(np.abs(matrix.diagonal()))
    limit = hermitian_tolerance(matrix.dtype) * diagonal[differences.row] * diagonal[differences.col]
    differing = int(np.count_nonzero(differences.data > limit))
    if differing:
        raise not_hermitian(tag, differing)
    failure = sparse_indefinite(tag, 1)
    if not (matrix.diagonal().real > 0).all():
        raise failure
    factors = _factored(
        failure, matrix, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options={"SymmetricMode": True}
    )
    if not np.array_equal(factors.perm_r, factors.perm_c) or not (factors.U.diagonal().real > 0).all():
        raise failure
    return factors
