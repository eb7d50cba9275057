"""A stand-in for ``nvmath.bindings.cublas`` that executes on host memory: column-major, as cuBLAS documents each call.

It reads matrices and vectors exactly where the arguments say, in double precision, and refuses what cuBLAS refuses:
leading dimensions that are too small, an unknown operation, factors or results on the wrong side of the pointer mode.
Triangles that a call does not read are not read here either.
"""

import ctypes
from typing import Any

import numpy as np
from host_cublas_structured import Structured
from host_driver import HostDriver, StatusError, array_at

from callboard.core.dtype import DTYPES

NP = {"s": np.float32, "d": np.float64, "c": np.complex64, "z": np.complex128}
TYPES = {
    2: DTYPES["f16"].np,
    14: DTYPES["bf16"].np,
    0: np.dtype("f4"),
    1: np.dtype("f8"),
    4: np.dtype("c8"),
    5: np.dtype("c16"),
    3: np.dtype("i1"),
    10: np.dtype("i4"),
}
HANDLE = 0xB1A5
"""The first one; others follow."""
COMPUTE = {68: "f4", 74: "f4", 75: "f4", 77: "f4", 70: "f8", 72: "i4"}


class CublasError(StatusError):
    pass


def wide(dtype: Any) -> Any:
    kind = np.dtype(dtype).kind
    return np.complex128 if kind == "c" else np.int64 if kind == "i" else np.float64


def _substituted(x: "np.ndarray[Any, Any]", right: "np.ndarray[Any, Any]", lower: bool) -> "np.ndarray[Any, Any]":
    """The solution of a triangular system; a zero on the diagonal gives infinities and NaN."""
    out, order = right.copy(), len(x)
    for i in range(order) if lower else reversed(range(order)):
        out[i] /= x[i, i]
        rest = slice(i + 1, None) if lower else slice(0, i)
        out[rest] -= np.outer(x[rest, i], out[i])
    return out


class HostCublas(Structured):
    """The functions of the binding that the backend calls.

    Attributes:
        calls: ``(name, arguments)`` of every call.
        streams: Of handles.
    """

    cuBLASError = CublasError  # noqa: N815 - the binding's name

    def __init__(self, driver: HostDriver) -> None:
        self._driver = driver
        self.calls: list[tuple[str, tuple[Any, ...]]] = []
        self.mode = 0
        self.streams: dict[int, int] = {}
        self.workspace: tuple[int, int] | None = None
        self.fails: dict[str, int] = {}

    def create(self) -> int:
        if "create" in self.fails:
            raise CublasError(self.fails["create"])
        self.streams[handle := HANDLE + len(self.streams)] = 0
        return handle

    def destroy(self, handle: int) -> None:
        self.calls.append(("destroy", (handle,)))

    def set_stream(self, handle: int, stream: int) -> None:
        self.streams[handle], self.workspace = stream, None

    def set_workspace(self, handle: int, address: int, nbytes: int) -> None:
        assert self._driver.on_device(address, nbytes)
        self.workspace = (address, nbytes)

    def set_pointer_mode(self, handle: int, mode: int) -> None:
        self.mode = mode

    def __getattr__(self, name: str) -> Any:
        if name.startswith(("_", "do_", "on_")):
            raise AttributeError(name)
        bare = name.removesuffix("_64")
        method = getattr(self, f"do_{bare}") if hasattr(type(self), f"do_{bare}") else None
        prefix: Any = None
        if method is None:
            for at, letters in ((0, bare[:1]), (1, bare[1:2])):
                lib = bare[:at] + bare[at + 1 :]
                if hasattr(type(self), f"on_{lib}") and letters in NP:
                    method, prefix = getattr(self, f"on_{lib}"), letters
                    break
        if method is None and bare in ("scasum", "dzasum", "scnrm2", "dznrm2"):
            method, prefix = getattr(self, f"on_{bare[2:]}"), bare[1]
        if method is None:
            raise AttributeError(name)

        def call(handle: int, *arguments: Any) -> None:
            self._driver.streams.add(self.streams[handle])
            assert self.workspace is not None
            self.calls.append((name, arguments))
            if bare in self.fails:
                raise CublasError(self.fails[bare])
            if not name.endswith("_64") and not bare.startswith("gemm_grouped"):
                assert all(not isinstance(a, int) or abs(a) < 2**31 or self._is_address(a) for a in arguments)
            with np.errstate(all="ignore"):  # as on a device
                method(*arguments) if prefix is None else method(NP[prefix], *arguments)

        return call

    # -- operands ------------------------------------------------------------------------------------------------------

    def _is_address(self, value: int) -> bool:
        return value > 2**40 or self._driver.on_device(value)

    def _factor(self, address: int, dtype: Any) -> Any:
        assert self._driver.on_device(address) == (self.mode == 1), "factor on the wrong side of the pointer mode"
        return array_at(address, dtype, (1,), (1,)).astype(wide(dtype))[0]

    def _result(self, address: int, dtype: Any, value: Any) -> None:
        assert self.mode == 1, "a result on the host would block"
        assert self._driver.on_device(address, np.dtype(dtype).itemsize)
        array_at(address, dtype, (1,), (1,))[...] = value

    def _matrix(self, address: int, rows: int, cols: int, ld: int, dtype: Any) -> "np.ndarray[Any, Any]":
        if ld < max(1, rows):
            raise CublasError(7)
        if rows and cols:
            assert self._driver.on_device(address, ((cols - 1) * ld + rows) * np.dtype(dtype).itemsize)
        return array_at(address, dtype, (rows, cols), (1, ld))

    def _vector(self, address: int, n: int, inc: int, dtype: Any) -> "np.ndarray[Any, Any]":
        assert inc != 0
        item = np.dtype(dtype).itemsize
        assert self._driver.on_device(address, ((n - 1) * abs(inc) + 1) * item)
        return array_at(address + (n - 1) * -inc * item if inc < 0 else address, dtype, (n,), (inc,))

    def _op(self, address: int, operation: int, rows: int, cols: int, ld: int, dtype: Any) -> "np.ndarray[Any, Any]":
        """``op(X)`` of shape ``[rows, cols]``, widened."""
        if operation not in (0, 1, 2):
            raise CublasError(7)
        stored = (rows, cols) if operation == 0 else (cols, rows)
        x = self._matrix(address, *stored, ld, dtype).astype(wide(dtype))
        return x if operation == 0 else x.T if operation == 1 else x.conj().T

    # -- level 1 -------------------------------------------------------------------------------------------------------

    def _axpy(self, n: int, alpha: Any, x: Any, y: Any) -> None:
        y[...] = y.astype(wide(y.dtype)) + alpha * x.astype(wide(x.dtype))

    def on_axpy(self, t: Any, n: int, alpha: int, x: int, incx: int, y: int, incy: int) -> None:
        self._axpy(n, self._factor(alpha, t), self._vector(x, n, incx, t), self._vector(y, n, incy, t))

    def do_axpy_ex(
        self, n: int, alpha: int, ta: int, x: int, tx: int, incx: int, y: int, ty: int, incy: int, te: int
    ) -> None:
        assert (ta, te) == (0, 0)
        assert tx == ty
        assert tx in (2, 14)
        t = TYPES[tx]
        self._axpy(n, self._factor(alpha, "f4"), self._vector(x, n, incx, t), self._vector(y, n, incy, t))

    def on_scal(self, t: Any, n: int, alpha: int, x: int, incx: int) -> None:
        assert incx > 0
        v = self._vector(x, n, incx, t)
        v[...] = v * self._factor(alpha, t)

    def do_scal_ex(self, n: int, alpha: int, ta: int, x: int, tx: int, incx: int, te: int) -> None:
        assert (ta, te) == (0, 0)
        assert incx > 0
        v = self._vector(x, n, incx, TYPES[tx])
        v[...] = v.astype("f8") * self._factor(alpha, "f4")

    def on_copy(self, t: Any, n: int, x: int, incx: int, y: int, incy: int) -> None:
        self._vector(y, n, incy, t)[...] = self._vector(x, n, incx, t)

    def on_swap(self, t: Any, n: int, x: int, incx: int, y: int, incy: int) -> None:
        a, b = self._vector(x, n, incx, t), self._vector(y, n, incy, t)
        a[...], b[...] = b.copy(), a.copy()

    def do_swap_ex(self, n: int, x: int, tx: int, incx: int, y: int, ty: int, incy: int) -> None:
        assert tx == ty
        self.on_swap(TYPES[tx], n, x, incx, y, incy)

    def on_rot(self, t: Any, n: int, x: int, incx: int, y: int, incy: int, c: int, s: int) -> None:
        a, b = self._vector(x, n, incx, t), self._vector(y, n, incy, t)
        cosine, sine = self._factor(c, np.zeros(0, t).real.dtype), self._factor(s, t)
        u, v = a.astype(wide(t)), b.astype(wide(t))
        a[...], b[...] = cosine * u + sine * v, cosine * v - np.conj(sine) * u

    def _dot(self, t: Any, n: int, x: int, incx: int, y: int, incy: int, out: int, conj: bool = False) -> None:
        a, b = self._vector(x, n, incx, t).astype(wide(t)), self._vector(y, n, incy, t).astype(wide(t))
        self._result(out, t, np.sum((a.conj() if conj else a) * b))

    def on_dot(self, *arguments: Any) -> None:
        self._dot(*arguments)

    def on_dotu(self, *arguments: Any) -> None:
        self._dot(*arguments)

    def on_dotc(self, *arguments: Any) -> None:
        self._dot(*arguments, conj=True)

    def do_dot_ex(
        self, n: int, x: int, tx: int, incx: int, y: int, ty: int, incy: int, out: int, to: int, te: int
    ) -> None:
        assert tx == ty == to
        assert te == 0
        self._dot(TYPES[tx], n, x, incx, y, incy, out)

    def on_nrm2(self, t: Any, n: int, x: int, incx: int, out: int) -> None:
        assert incx > 0
        v = self._vector(x, n, incx, t).astype(wide(t))
        self._result(out, np.zeros(0, t).real.dtype, np.linalg.norm(v))

    def on_asum(self, t: Any, n: int, x: int, incx: int, out: int) -> None:
        assert incx > 0
        v = self._vector(x, n, incx, t).astype(wide(t))
        self._result(out, np.zeros(0, t).real.dtype, np.sum(np.abs(v.real) + np.abs(v.imag)))

    def _index(self, best: Any, t: Any, n: int, x: int, incx: int, out: int) -> None:
        assert self.calls[-1][0].endswith("_64")  # else the result has 32 bits
        assert incx > 0
        v = self._vector(x, n, incx, t).astype(wide(t))
        self._result(out, np.int64, best(np.abs(v.real) + np.abs(v.imag)) + 1)

    def on_iamax(self, *arguments: Any) -> None:
        self._index(np.argmax, *arguments)

    def on_iamin(self, *arguments: Any) -> None:
        self._index(np.argmin, *arguments)

    def do_iamax_ex(self, n: int, x: int, tx: int, incx: int, out: int) -> None:
        self._index(np.argmax, TYPES[tx], n, x, incx, out)

    def do_iamin_ex(self, n: int, x: int, tx: int, incx: int, out: int) -> None:
        self._index(np.argmin, TYPES[tx], n, x, incx, out)

    # -- level 2 -------------------------------------------------------------------------------------------------------

    def on_gemv(
        self, t: Any, trans: int, m: int, n: int, alpha: int, a: int, lda: int, x: int, incx: int, beta: int, y: int,
        incy: int,
    ) -> None:  # fmt: skip
        rows, cols = (m, n) if trans == 0 else (n, m)
        matrix = self._op(a, trans, rows, cols, lda, t)
        v, out = self._vector(x, cols, incx, t), self._vector(y, rows, incy, t)
        total = self._factor(alpha, t) * (matrix @ v.astype(wide(t)))
        factor = self._factor(beta, t)
        out[...] = total + factor * out.astype(wide(t)) if factor else total

    def _ger(
        self, t: Any, m: int, n: int, alpha: int, x: int, incx: int, y: int, incy: int, a: int, lda: int,
        conj: bool = False,
    ) -> None:  # fmt: skip
        u, v = self._vector(x, m, incx, t).astype(wide(t)), self._vector(y, n, incy, t).astype(wide(t))
        out = self._matrix(a, m, n, lda, t)
        out[...] = out + self._factor(alpha, t) * np.outer(u, v.conj() if conj else v)

    def on_ger(self, *arguments: Any) -> None:
        self._ger(*arguments)

    def on_geru(self, *arguments: Any) -> None:
        self._ger(*arguments)

    def on_gerc(self, *arguments: Any) -> None:
        self._ger(*arguments, conj=True)

    # -- level 3 -------------------------------------------------------------------------------------------------------

    def _gemm(self, a: Any, b: Any, alpha: Any, beta: Any, out: "np.ndarray[Any, Any]") -> None:
        total = alpha * (a @ b) if alpha else 0
        out[...] = total + beta * out.astype(wide(out.dtype)) if beta else total

    def on_gemm(
        self, t: Any, op1: int, op2: int, m: int, n: int, k: int, alpha: int, a: int, lda: int, b: int, ldb: int,
        beta: int, c: int, ldc: int,
    ) -> None:  # fmt: skip
        first, second = self._op(a, op1, m, k, lda, t), self._op(b, op2, k, n, ldb, t)
        out = self._matrix(c, m, n, ldc, t)
        self._gemm(first, second, self._factor(alpha, t), self._factor(beta, t), out)

    def _scale(self, ta: int, tc: int, compute: int) -> Any:
        expected = {2: (2, "f4"), 14: (14, "f4"), 0: (0, "f4"), 4: (4, "f4"), 1: (1, "f8"), 5: (5, "f8"), 3: (10, "i4")}
        assert (tc, COMPUTE[compute]) == expected[ta]
        return {2: "f4", 14: "f4", 3: "i4"}.get(ta, TYPES[ta])

    def do_gemm_ex(
        self, op1: int, op2: int, m: int, n: int, k: int, alpha: int, a: int, ta: int, lda: int, b: int, tb: int,
        ldb: int, beta: int, c: int, tc: int, ldc: int, compute: int, algo: int,
    ) -> None:  # fmt: skip
        assert ta == tb
        assert algo == -1
        if ta == 3:
            assert all(x % 4 == 0 for x in (m, n, k, lda, ldb, a, b))
        scale = self._scale(ta, tc, compute)
        first, second = self._op(a, op1, m, k, lda, TYPES[ta]), self._op(b, op2, k, n, ldb, TYPES[ta])
        out = self._matrix(c, m, n, ldc, TYPES[tc])
        self._gemm(first, second, self._factor(alpha, scale), self._factor(beta, scale), out)

    def do_gemm_strided_batched_ex(
        self, op1: int, op2: int, m: int, n: int, k: int, alpha: int, a: int, ta: int, lda: int, step_a: int, b: int,
        tb: int, ldb: int, step_b: int, beta: int, c: int, tc: int, ldc: int, step_c: int, batch: int, compute: int,
        algo: int,
    ) -> None:  # fmt: skip
        for i in range(batch):
            at = [x + i * s * TYPES[t].itemsize for x, s, t in ((a, step_a, ta), (b, step_b, tb), (c, step_c, tc))]
            self.do_gemm_ex(
                op1, op2, m, n, k, alpha, at[0], ta, lda, at[1], tb, ldb, beta, at[2], tc, ldc, compute, algo
            )

    def _pointers(self, address: int, count: int) -> list[int]:
        assert self._driver.on_device(address, 8 * count)
        return [int(x) for x in array_at(address, np.uint64, (count,), (1,))]

    def do_gemm_batched_ex(
        self, op1: int, op2: int, m: int, n: int, k: int, alpha: int, a: int, ta: int, lda: int, b: int, tb: int,
        ldb: int, beta: int, c: int, tc: int, ldc: int, batch: int, compute: int, algo: int,
    ) -> None:  # fmt: skip
        assert ta != 3
        for x, y, z in zip(*(self._pointers(p, batch) for p in (a, b, c)), strict=True):
            self.do_gemm_ex(op1, op2, m, n, k, alpha, x, ta, lda, y, tb, ldb, beta, z, tc, ldc, compute, algo)

    def do_gemm_grouped_batched_ex(
        self, op1: int, op2: int, m: int, n: int, k: int, alpha: int, a: int, ta: int, lda: int, b: int, tb: int,
        ldb: int, beta: int, c: int, tc: int, ldc: int, groups: int, sizes: int, compute: int,
    ) -> None:  # fmt: skip
        assert self.mode == 0
        assert ta in (2, 14, 0, 1)
        scale = np.dtype(self._scale(ta, tc, compute))
        ints = [list((ctypes.c_int * groups).from_address(x)) for x in (op1, op2, m, n, k, lda, ldb, ldc, sizes)]
        total = sum(ints[8])
        addresses = [self._pointers(p, total) for p in (a, b, c)]
        at = 0
        for g in range(groups):
            o1, o2, gm, gn, gk, la, lb, lc, size = (column[g] for column in ints)
            for i in range(at, at + size):
                x, y, z = (p[i] for p in addresses)
                self.do_gemm_ex(
                    *(o1, o2, gm, gn, gk, alpha + g * scale.itemsize, x, ta, la, y, tb, lb),
                    *(beta + g * scale.itemsize, z, tc, lc, compute, -1),
                )
            at += size

    def on_geam(
        self, t: Any, op1: int, op2: int, m: int, n: int, alpha: int, a: int, lda: int, beta: int, b: int, ldb: int,
        c: int, ldc: int,
    ) -> None:  # fmt: skip
        fa, fb = self._factor(alpha, t), self._factor(beta, t)
        if c in (a, b):
            assert (op1 if c == a else op2) == 0
        total = np.zeros((m, n), wide(t))
        if fa:
            total = total + fa * self._op(a, op1, m, n, lda, t)
        if fb:
            total = total + fb * self._op(b, op2, m, n, ldb, t)
        self._matrix(c, m, n, ldc, t)[...] = total

    @staticmethod
    def _triangle(x: "np.ndarray[Any, Any]", uplo: int, k: int = 0) -> "np.ndarray[Any, Any]":
        return np.tril(x, -k) if uplo == 0 else np.triu(x, k)

    def _rank_k(
        self, t: Any, scale: Any, uplo: int, trans: int, n: int, k: int, alpha: int, a: int, lda: int, beta: int,
        c: int, ldc: int, hermitian: bool,
    ) -> None:  # fmt: skip
        assert trans in ((0, 2) if hermitian else (0, 1))
        x = self._op(a, trans, n, k, lda, t)
        out = self._matrix(c, n, n, ldc, t)
        total = self._factor(alpha, scale) * (x @ (x.conj().T if hermitian else x.T))
        factor = self._factor(beta, scale)
        if factor:
            old = self._triangle(out.astype(wide(t)), uplo)
            if hermitian:
                np.fill_diagonal(old, old.diagonal().real)
            total = total + factor * old
        if hermitian:
            np.fill_diagonal(total, total.diagonal().real)
        mask = self._triangle(np.ones((n, n), bool), uplo)
        out[mask] = total[mask]

    def on_syrk(self, t: Any, *arguments: Any) -> None:
        self._rank_k(t, t, *arguments, hermitian=False)

    def on_herk(self, t: Any, *arguments: Any) -> None:
        self._rank_k(t, np.zeros(0, t).real.dtype, *arguments, hermitian=True)

    def _two_sided(
        self, t: Any, side: int, uplo: int, m: int, n: int, alpha: int, a: int, lda: int, b: int, ldb: int, beta: int,
        c: int, ldc: int, hermitian: bool,
    ) -> None:  # fmt: skip
        order = m if side == 0 else n
        half = self._triangle(self._matrix(a, order, order, lda, t).astype(wide(t)), uplo)
        strict = self._triangle(half, uplo, 1)
        if hermitian:
            np.fill_diagonal(half, half.diagonal().real)
        full = half + (strict.conj() if hermitian else strict).T
        x = self._matrix(b, m, n, ldb, t).astype(wide(t))
        first, second = (full, x) if side == 0 else (x, full)
        out = self._matrix(c, m, n, ldc, t)
        self._gemm(first, second, self._factor(alpha, t), self._factor(beta, t), out)

    def on_symm(self, *arguments: Any) -> None:
        self._two_sided(*arguments, hermitian=False)

    def on_hemm(self, *arguments: Any) -> None:
        self._two_sided(*arguments, hermitian=True)

    def _triangular(self, t: Any, side: int, uplo: int, trans: int, diag: int, m: int, n: int, a: int, lda: int) -> Any:
        assert trans in (0, 1, 2)
        order = m if side == 0 else n
        x = self._triangle(self._matrix(a, order, order, lda, t).astype(wide(t)), uplo, 1 if diag else 0)
        if diag:
            x = x + np.eye(order)
        return x if trans == 0 else x.T if trans == 1 else x.conj().T

    def on_trsm(
        self, t: Any, side: int, uplo: int, trans: int, diag: int, m: int, n: int, alpha: int, a: int, lda: int,
        b: int, ldb: int,
    ) -> None:  # fmt: skip
        x = self._triangular(t, side, uplo, trans, diag, m, n, a, lda)
        out = self._matrix(b, m, n, ldb, t)
        right = self._factor(alpha, t) * out.astype(wide(t))
        lower = (uplo == 0) == (trans == 0)
        out[...] = _substituted(x, right, lower) if side == 0 else _substituted(x.T, right.T, not lower).T

    def on_trmm(
        self, t: Any, side: int, uplo: int, trans: int, diag: int, m: int, n: int, alpha: int, a: int, lda: int,
        b: int, ldb: int, c: int, ldc: int,
    ) -> None:  # fmt: skip
        x = self._triangular(t, side, uplo, trans, diag, m, n, a, lda)
        old = self._matrix(b, m, n, ldb, t).astype(wide(t))
        total = x @ old if side == 0 else old @ x
        self._matrix(c, m, n, ldc, t)[...] = self._factor(alpha, t) * total
