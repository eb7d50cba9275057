"""Routines of cuBLAS on symmetric, Hermitian, triangular and banded matrices: part of the stand-in ``HostCublas``."""

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

    def on_symv(self, t: Any, uplo: int, n: int, alpha: int, a: int, lda: int, *rest: int) -> None:
        self._product(t, self._whole(self._square(t, uplo, n, a, lda), False), alpha, *rest)

    def on_hemv(self, t: Any, uplo: int, n: int, alpha: int, a: int, lda: int, *rest: int) -> None:
        self._product(t, self._whole(self._square(t, uplo, n, a, lda), True), alpha, *rest)

    def on_spmv(self, t: Any, uplo: int, n: int, alpha: int, a: int, *rest: int) -> None:
        self._product(t, self._whole(self._packed(t, uplo, n, a), False), alpha, *rest)

    def on_hpmv(self, t: Any, uplo: int, n: int, alpha: int, a: int, *rest: int) -> None:
        self._product(t, self._whole(self._packed(t, uplo, n, a), True), alpha, *rest)

    def on_sbmv(self, t: Any, uplo: int, n: int, k: int, alpha: int, a: int, lda: int, *rest: int) -> None:
        self._product(t, self._whole(self._band(t, uplo, n, k, a, lda), False), alpha, *rest)

    def on_hbmv(self, t: Any, uplo: int, n: int, k: int, alpha: int, a: int, lda: int, *rest: int) -> None:
        self._product(t, self._whole(self._band(t, uplo, n, k, a, lda), True), alpha, *rest)

    def on_gbmv(
        self, t: Any, trans: int, m: int, n: int, below: int, above: int, alpha: int, a: int, lda: int, *rest: int
    ) -> None:
        stored, full = self._matrix(a, below + above + 1, n, lda, t), np.zeros((m, n), wide(t))
        for j in range(n):
            for i in range(max(0, j - above), min(m, j + below + 1)):
                full[i, j] = stored[above + i - j, j]
        self._product(t, full if trans == 0 else full.T if trans == 1 else full.conj().T, alpha, *rest)

    # -- in place ------------------------------------------------------------------------------------------------------

    def _added(self, t: Any, uplo: int, n: int, a: int, lda: int, added: Any, hermitian: bool) -> None:
        out, inside = self._matrix(a, n, n, lda, t), self._inside(n, uplo)
        total = out.astype(wide(t)) + added
        if hermitian:
            np.fill_diagonal(total, total.diagonal().real)
        out[inside] = total[inside]

    def on_her(self, t: Any, uplo: int, n: int, alpha: int, x: int, incx: int, a: int, lda: int) -> None:
        v = self._vector(x, n, incx, t).astype(wide(t))
        factor = self._factor(alpha, np.zeros(0, t).real.dtype)
        self._added(t, uplo, n, a, lda, factor * np.outer(v, v.conj()), True)

    def _two(self, t: Any, n: int, alpha: int, x: int, incx: int, y: int, incy: int, hermitian: bool) -> Any:
        u, v = (self._vector(at, n, inc, t).astype(wide(t)) for at, inc in ((x, incx), (y, incy)))
        factor = self._factor(alpha, t)
        if not hermitian:
            return factor * (np.outer(u, v) + np.outer(v, u))
        return factor * np.outer(u, v.conj()) + np.conj(factor) * np.outer(v, u.conj())

    def on_syr2(self, t: Any, uplo: int, n: int, *rest: int) -> None:
        self._added(t, uplo, n, *rest[-2:], self._two(t, n, *rest[:-2], False), False)

    def on_her2(self, t: Any, uplo: int, n: int, *rest: int) -> None:
        self._added(t, uplo, n, *rest[-2:], self._two(t, n, *rest[:-2], True), True)

    def on_spr2(self, t: Any, uplo: int, n: int, *rest: int) -> None:
        packed, places = self._vector(rest[-1], n * (n + 1) // 2, 1, t), self._columns(n, uplo)
        packed[...] = packed + self._two(t, n, *rest[:-1], False)[places]

    def on_hpr(self, t: Any, uplo: int, n: int, alpha: int, x: int, incx: int, a: int) -> None:
        v = self._vector(x, n, incx, t).astype(wide(t))
        added = self._factor(alpha, np.zeros(0, t).real.dtype) * np.outer(v, v.conj())
        self._added_packed(t, uplo, n, a, added)

    def on_hpr2(self, t: Any, uplo: int, n: int, *rest: int) -> None:
        self._added_packed(t, uplo, n, rest[-1], self._two(t, n, *rest[:-1], True))

    def _added_packed(self, t: Any, uplo: int, n: int, a: int, added: Any) -> None:
        out, (rows, columns) = self._vector(a, n * (n + 1) // 2, 1, t), self._columns(n, uplo)
        total = out + added[rows, columns]
        out[...] = np.where(rows == columns, total.real, total)

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

    def _with_vector(self, t: Any, half: Any, trans: int, diag: int, x: int, incx: int, solve: bool) -> None:
        assert trans in (0, 1, 2)
        if diag:
            np.fill_diagonal(half, 1)
        matrix = half if trans == 0 else half.T if trans == 1 else half.conj().T
        out = self._vector(x, len(half), incx, t)
        old = out.astype(wide(t))
        out[...] = np.linalg.solve(matrix, old) if solve else matrix @ old

    def on_trmv(self, t: Any, uplo: int, trans: int, diag: int, n: int, a: int, lda: int, *x: int) -> None:
        self._with_vector(t, self._square(t, uplo, n, a, lda), trans, diag, *x, solve=False)

    def on_trsv(self, t: Any, uplo: int, trans: int, diag: int, n: int, a: int, lda: int, *x: int) -> None:
        self._with_vector(t, self._square(t, uplo, n, a, lda), trans, diag, *x, solve=True)

    def on_tpmv(self, t: Any, uplo: int, trans: int, diag: int, n: int, a: int, *x: int) -> None:
        self._with_vector(t, self._packed(t, uplo, n, a), trans, diag, *x, solve=False)

    def on_tpsv(self, t: Any, uplo: int, trans: int, diag: int, n: int, a: int, *x: int) -> None:
        self._with_vector(t, self._packed(t, uplo, n, a), trans, diag, *x, solve=True)

    def on_tbmv(self, t: Any, uplo: int, trans: int, diag: int, n: int, k: int, a: int, lda: int, *x: int) -> None:
        self._with_vector(t, self._band(t, uplo, n, k, a, lda), trans, diag, *x, solve=False)

    def on_tbsv(self, t: Any, uplo: int, trans: int, diag: int, n: int, k: int, a: int, lda: int, *x: int) -> None:
        self._with_vector(t, self._band(t, uplo, n, k, a, lda), trans, diag, *x, solve=True)
