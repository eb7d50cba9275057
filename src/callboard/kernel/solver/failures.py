"""Error texts for a routine's positive ``info``, the same for every backend.

Each function takes the tag of the op and the ``info`` of LAPACK, and gives the error. Positions are 0-based as
everywhere in Python; ``info`` on the error is the routine's own number.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from callboard.core.errors import NumericalError

__all__ = [
    "Explain",
    "bad_indices",
    "deficient",
    "first_of",
    "generalised",
    "hermitian_tolerance",
    "inaccurate",
    "indefinite",
    "not_finite",
    "not_hermitian",
    "singular",
    "sparse_indefinite",
    "sparse_singular",
    "structurally_singular",
    "too_many",
    "unconverged",
    "unconverged_off_diagonals",
    "zero_pivots",
]

Explain = Callable[[str, int], NumericalError]


def not_finite(tag: str, count: int) -> NumericalError:
    """``count`` elements of the operands are NaN or infinite."""
    noun = "element of the operands is" if count == 1 else "elements of the operands are"
    return NumericalError(f"{tag}: {count} {noun} NaN or infinite", -1)


def bad_indices(tag: str, count: int, what: str) -> NumericalError:
    """``count`` indices are out of their range."""
    return NumericalError(f"{tag}: {count} of the {what} are out of range", -1)


def singular(tag: str, info: int) -> NumericalError:
    """LU: a pivot is exactly 0."""
    return NumericalError(f"{tag}: the matrix is singular: pivot {info - 1} is exactly 0", info)


def indefinite(tag: str, info: int) -> NumericalError:
    """Cholesky: a leading minor is not positive."""
    return NumericalError(
        f"{tag}: the matrix is not positive definite: its leading minor of order {info} is not positive", info
    )


def deficient(tag: str, info: int) -> NumericalError:
    """Least squares by QR: the triangular factor is singular."""
    return NumericalError(
        f"{tag}: the matrix has not full rank: diagonal element {info - 1} of its triangular factor is 0", info
    )


def unconverged(tag: str, info: int) -> NumericalError:
    """An iteration ended without convergence; ``info`` counts the unconverged items, as the routine documents."""
    return NumericalError(f"{tag}: the iteration did not converge (info {info})", info)


def unconverged_off_diagonals(tag: str, info: int) -> NumericalError:
    """Symmetric eigenvalues and SVD: ``info`` off-diagonal elements of an intermediate form did not become 0."""
    noun = "element" if info == 1 else "elements"
    return NumericalError(
        f"{tag}: {info} off-diagonal {noun} of an intermediate tridiagonal or bidiagonal form did not converge to 0",
        info,
    )


def generalised(n: int, otherwise: Explain) -> Explain:
    """``sygvd`` of order ``n``: above ``n``, a leading minor of ``b`` is not positive; up to ``n``, ``otherwise``."""

    def explain(tag: str, info: int) -> NumericalError:
        if info > n:
            return NumericalError(
                f"{tag}: b is not positive definite: its leading minor of order {info - n} is not positive", info
            )
        return otherwise(tag, info)

    return explain


def hermitian_tolerance(dtype: np.dtype[Any]) -> float:
    """Difference of mirrored elements ``i, j`` that is rounding, relative to ``sqrt(|a[i, i] * a[j, j]|)``.

    A product ``h @ h.conj().T`` is seldom symmetric to the last digit.
    """
    return 1e-4 if np.finfo(dtype).bits == 32 else 1e-10


def not_hermitian(tag: str, count: int) -> NumericalError:
    """``count`` elements differ from the conjugate of their mirror image."""
    noun = "element differs" if count == 1 else "elements differ"
    return NumericalError(
        f"{tag}: the matrix is not symmetric or Hermitian: {count} {noun} from the mirrored one by more than rounding; "
        "give (a + a.conj().T) / 2, or solve with sparse_lu",
        -1,
    )


def sparse_singular(tag: str, info: int) -> NumericalError:
    """A sparse factorisation met a zero pivot; ``info`` is 0 if its position is unknown."""
    where = f": diagonal element {info - 1} of its triangular factor is 0" if info else ""
    return NumericalError(f"{tag}: the matrix is singular{where}", info or 1)


def sparse_indefinite(tag: str, info: int) -> NumericalError:
    """A sparse Cholesky factorisation has met a pivot that is not positive; ``info`` counts in its own order."""
    return NumericalError(f"{tag}: the matrix is not positive definite", info)


def structurally_singular(tag: str, missing: int, n: int) -> NumericalError:
    """A sparse matrix of order ``n`` has fewer than ``n`` elements in different rows and columns that are not 0."""
    return NumericalError(
        f"{tag}: the matrix is singular: of its elements that are not 0, no more than {n - missing} are in different "
        f"rows and columns; there must be {n}",
        missing,
    )


def zero_pivots(tag: str, count: int) -> NumericalError:
    """A sparse factorisation found only zero pivots in ``count`` places."""
    noun = "pivot is" if count == 1 else "pivots are"
    return NumericalError(f"{tag}: the matrix is singular: {count} {noun} 0", count)


def inaccurate(tag: str) -> NumericalError:
    """Error for a sparse factorisation whose solution does not satisfy the system."""
    return NumericalError(
        f"{tag}: no solution was found that satisfies the system: the matrix is singular or nearly so, or needs pivots "
        f"that the factorisation does not look for",
        1,
    )


def too_many(tag: str, count: int, capacity: int) -> NumericalError:
    """More eigenvalues in the range than the outputs hold."""
    return NumericalError(
        f"{tag}: {count} eigenvalues lie in the range, the outputs hold {capacity}; give larger ones", count
    )


def first_of(error: NumericalError, item: int, failed: int, batch: int) -> NumericalError:
    """The error of a batch: that of its first failing item, and how many there are."""
    return NumericalError(f"{error} (item {item}, the first of {failed} that failed among {batch})", error.info, item)
