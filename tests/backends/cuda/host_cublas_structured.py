"""Routines of cuBLAS on symmetric, Hermitian, triangular and banded matrices: part of the stand-in ``HostCublas``."""

from functools import partialmethod
from typing import Any

import numpy as np


def wide(dtype: Any) -> Any:
    return np.complex128 if np.dtype(dtype).kind == "c" else np.float64


class Structured:
    """Reads one triangle of a square, packed columns, or diagonals, as cuBLAS documents each call."""

    _factor: Any
    _matrix: Any
    _vector: Any
    _op: Any

    @staticmethod
    def _inside(n: int, uplo: int) -> Any:
        return np.tri(n, dtype=bool) if uplo == 0 else np.tri(n, dtype=bool).T

    def _columns(self, n: int, uplo: int) -> tuple[Any, Any]:
        """Rows and columns of a packed triangle, column by column."""
        columns, rows = np.nonzero(self._inside(n, uplo).T)
        return rows, columns

    def _square(self, t: Any, uplo: int, n: int, a: int, lda: int) -> Any:
        return np.where(self._inside(n, uplo), self._matrix(a, n, n, lda, t).astype(wide(t)), 0)

    def _packed(self, t: Any, uplo: int, n: int, a: int) -> Any:
        full = np.zeros((n, n), wide(t))
        full[self._columns(n, uplo)] = self._vector(a, n * (n + 1) // 2, 1, t)
        return full

    def _band(self, t: Any, uplo: int, n: int, k: int, a: int, lda: int) -> Any:
        stored, full = self._matrix(a, k + 1, n, lda, t), np.zeros((n, n), wide(t))
        for j in range(n):
            for i in range(n):
                if uplo == 0 and 0 <= i - j <= k:
                    full[i, j] = stored[i - j, j]
                elif uplo == 1 and 0 <= j - i <= k:
                    full[i, j] = stored[k + i - j, j]
        return full

    def _whole(self, half: Any, hermitian: bool) -> Any:
        other = (half.conj() if hermitian else half).T.copy()
        np.fill_diagonal(other, 0)
        if hermitian:
            np.fill_diagonal(half, half.diagonal().real)
        return half + other

    def _product(self, t: Any, matrix: Any, alpha: int, x: int, incx: int, beta: int, y: int, incy: int) -> None:
        rows, cols = matrix.shape
        v, out = self._vector(x, cols, incx, t).astype(wide(t)), self._vector(y, rows, incy, t)
        factor, total = self._factor(beta, t), self._factor(alpha, t) * (matrix @ v)
        out[...] = total + factor * out.astype(wide(t)) if factor else total

    def _half(self, kind: str, t: Any, uplo: int, n: int, rest: list[int]) -> Any:
        """The stored part of a matrix, zero elsewhere; its arguments are taken from the front of ``rest``."""
        if kind[1] == "p":
            return self._packed(t, uplo, n, rest.pop(0))
        if kind[1] == "b":
            return self._band(t, uplo, n, rest.pop(0), rest.pop(0), rest.pop(0))
        return self._square(t, uplo, n, rest.pop(0), rest.pop(0))

    def multiply(self, kind: str, t: Any, uplo: int, n: int, *arguments: int) -> None:
        rest = list(arguments)
        alpha = rest.pop(kind[1] == "b")
        whole = self._whole(self._half(kind, t, uplo, n, rest), kind[0] == "h")
        self._product(t, whole, alpha, *rest)

    def on_gbmv(
        self, t: Any, trans: int, m: int, n: int, below: int, above: int, alpha: int, a: int, lda: int, *rest: int
    ) -> None:
        stored, full = self._matrix(a, below + above + 1, n, lda, t), np.zeros((m, n), wide(t))
        for j in range(n):
            for i in range(max(0, j - above), min(m, j + below + 1)):
                full[i, j] = stored[above + i - j, j]
        self._product(t, full if trans == 0 else full.T if trans == 1 else full.conj().T, alpha, *rest)

    # -- in place ------------------------------------------------------------------------------------------------------

    def add(self, kind: str, t: Any, uplo: int, n: int, alpha: int, *rest: int) -> None:
        """Products of one vector with itself, or of two with each other, to one triangle."""
        packed, hermitian = kind[1] == "p", kind[0] == "h"
        (*places, a), ld = (rest, ()) if packed else (rest[:-1], rest[-1:])
        pairs = zip(places[::2], places[1::2], strict=True)
        u, *others = (self._vector(at, n, inc, t).astype(wide(t)) for at, inc in pairs)
        conj = np.conj if hermitian else np.asarray
        factor = self._factor(alpha, np.zeros(0, t).real.dtype if hermitian and not others else t)
        added = factor * np.outer(u, conj(others[0] if others else u))
        if others:
            added = added + conj(factor) * np.outer(others[0], conj(u))
        if packed:
            where = self._columns(n, uplo)
            out, added = self._vector(a, len(where[0]), 1, t), added[where]
            inside, diagonal = np.ones(len(where[0]), bool), where[0] == where[1]
        else:
            out, inside, diagonal = self._matrix(a, n, n, *ld, t), self._inside(n, uplo), np.eye(n, dtype=bool)
        total = out.astype(wide(t)) + added
        out[inside] = (np.where(diagonal, total.real, total) if hermitian else total)[inside]

    def _rank_2k(
        self, t: Any, scale: Any, uplo: int, trans: int, n: int, k: int, alpha: int, a: int, lda: int, b: int, ldb: int,
        beta: int, c: int, ldc: int, hermitian: bool,
    ) -> None:  # fmt: skip
        assert trans in ((0, 2) if hermitian else (0, 1))
        u, v = self._op(a, trans, n, k, lda, t), self._op(b, trans, n, k, ldb, t)
        factor, keep, out = self._factor(alpha, t), self._factor(beta, scale), self._matrix(c, n, n, ldc, t)
        if hermitian:
            total = factor * u @ v.conj().T + np.conj(factor) * v @ u.conj().T
        else:
            total = factor * (u @ v.T + v @ u.T)
        inside = self._inside(n, uplo)
        out[inside] = (total + keep * out.astype(wide(t)) if keep else total)[inside]

    def on_syr2k(self, t: Any, *arguments: Any) -> None:
        self._rank_2k(t, t, *arguments, hermitian=False)

    def on_her2k(self, t: Any, *arguments: Any) -> None:
        self._rank_2k(t, np.zeros(0, t).real.dtype, *arguments, hermitian=True)

    # -- triangular ----------------------------------------------------------------------------------------------------

    def triangular(
        self, kind: str, solve: bool, t: Any, uplo: int, trans: int, diag: int, n: int, *arguments: int
    ) -> None:
        assert trans in (0, 1, 2)
        half = self._half(kind, t, uplo, n, rest := list(arguments))
        if diag:
            np.fill_diagonal(half, 1)
        matrix = half if trans == 0 else half.T if trans == 1 else half.conj().T
        at, inc = rest
        out = self._vector(at, n, inc, t)
        old = out.astype(wide(t))
        out[...] = np.linalg.solve(matrix, old) if solve else matrix @ old


# The first letter of a routine is the structure: symmetric, Hermitian, triangular. The second is how it is stored: a
# square, packed, a band.
for _kind in ("sy", "he", "sp", "hp", "sb", "hb"):
    setattr(Structured, f"on_{_kind}mv", partialmethod(Structured.multiply, _kind))
    if _kind[1] != "b":
        for _rank in ("r", "r2"):
            setattr(Structured, f"on_{_kind}{_rank}", partialmethod(Structured.add, _kind))
for _kind in ("tr", "tp", "tb"):
    for _solve in (False, True):
        setattr(Structured, f"on_{_kind}{'s' if _solve else 'm'}v", partialmethod(Structured.triangular, _kind, _solve))
