"""Matrices of the structures that BLAS knows, and how each is stored."""

from typing import Any

import numpy as np

__all__ = ["banded", "inside", "packed", "stored", "symmetric", "within"]

Array = np.ndarray[Any, Any]


def inside(n: int, lower: bool) -> Array:
    """Where one triangle is."""
    return np.tri(n, dtype=bool) if lower else np.tri(n, dtype=bool).T


def symmetric(matrix: Array, hermitian: bool) -> Array:
    """The matrix that the lower triangle of another one says."""
    whole = np.where(inside(len(matrix), True), matrix, matrix.conj().T if hermitian else matrix.T)
    if hermitian:
        whole[np.diag_indices(len(whole))] = whole.diagonal().real
    return whole


def packed(matrix: Array, lower: bool, columns: bool = False) -> Array:
    """The rows of a triangle, or its columns, one behind the other."""
    return packed(matrix.T, not lower) if columns else matrix[inside(len(matrix), lower)]


def banded(matrix: Array, below: int, above: int) -> Array:
    """The diagonals as rows, with NaN where the matrix has none."""
    m, n = matrix.shape
    out = np.full((below + above + 1, n), np.nan, matrix.dtype)
    for i in range(m):
        for j in range(max(0, i - below), min(n, i + above + 1)):
            out[above + i - j, j] = matrix[i, j]
    return out


def stored(matrix: Array, storage: str, lower: bool, k: int, columns: bool = False) -> Array:
    """One triangle as an op takes it; a band is to lie column-major. What is not to be read is NaN."""
    if storage == "packed":
        return packed(matrix, lower, columns)
    if storage == "banded":
        return banded(matrix, k if lower else 0, 0 if lower else k)
    return np.where(inside(len(matrix), lower), matrix, matrix.dtype.type(np.nan))


def within(matrix: Array, below: int, above: int) -> Array:
    """The matrix with zeros beyond a band."""
    return np.asarray(np.tril(np.triu(matrix, -below), above))
