"""A stand-in for ``nvmath.bindings.cusolverDn`` that executes on host memory, column-major, by LAPACK.

It wants every array, workspace and ``info`` on the device and inside of an allocation, workspaces of the size that it
asked for, and tall matrices where cuSOLVER does. Beside it what cuBLAS has of batches.
"""

import ctypes
import itertools
from typing import Any

import numpy as np
from host_cublas import HostCublas
from host_driver import HostDriver, StatusError, array_at

from callboard.backends.cpu.solver.lapack import Array, Work, lapack

LETTERS = {0: "s", 1: "d", 4: "c", 5: "z"}
NP: dict[str, Any] = {"s": np.float32, "d": np.float64, "c": np.complex64, "z": np.complex128}
CODES = {kind: letter for letter, kind in NP.items()}
REAL: dict[str, Any] = {"s": np.float32, "d": np.float64, "c": np.float32, "z": np.float64}
ON_DEVICE, ON_HOST, LENGTH = 1024, 128, 96
"""What every routine asks for: bytes, bytes and elements."""


class CusolverError(StatusError):
    pass


def hermitian(letter: str, real: str, other: str) -> str:
    return letter + (other if letter in "cz" else real)


class HostCusolver:
    """The functions of the binding that the backend calls.

    Attributes:
        alive: Handles and the like that have not been destroyed.
        fails: Statuses by name of a function.
    """

    def __init__(self, driver: HostDriver) -> None:
        self._driver = driver
        self.alive: list[int] = []
        self.streams: dict[int, int] = {}
        self.fails: dict[str, int] = {}
        self._made = 0xC0

    def __getattr__(self, name: str) -> Any:
        if name.startswith(("_", "do_")):
            raise AttributeError(name)
        if name.startswith("create"):
            return self._create
        if name.startswith("destroy"):
            return self.alive.remove
        if name.endswith("_buffer_size"):
            return lambda *a: (ON_DEVICE, ON_HOST) if name.startswith("x") else LENGTH

        def call(*arguments: Any) -> Any:
            if name in self.fails:
                raise CusolverError(self.fails[name])
            self._driver.streams.add(self.streams[arguments[0]])
            if name.startswith("x"):
                return self._wide(name, *arguments)
            letter, bare = name[0], name[1:]
            names = {"ungqr": "orgqr", "unmqr": "ormqr", "heevj": "syevj", "hegvd": "sygvd"}
            bare = (names | {"heevj_batched": "syevj_batched"}).get(bare, bare)
            return getattr(self, f"do_{bare}")(letter, *arguments)

        return call

    def _create(self) -> int:
        self._made += 1
        self.alive.append(self._made)
        return self._made

    def set_stream(self, handle: int, stream: int) -> None:
        assert handle in self.alive
        self.streams[handle] = stream

    def _wide(self, name: str, handle: int, params: int, *arguments: Any) -> Any:
        """Of the 64-bit interface: the types among the arguments become one letter, the workspaces are looked at."""
        assert {handle, params} <= {*self.alive}
        return getattr(self, f"do_{name}")(*arguments)

    # -- memory --------------------------------------------------------------------------------------------------------

    def matrix(self, address: int, letter: str, m: int, n: int, ld: int) -> Array:
        assert ld >= max(m, 1)
        assert self._driver.on_device(address, ((max(n, 1) - 1) * ld + m) * np.dtype(NP[letter]).itemsize)
        return array_at(address, NP[letter], (m, n), (1, ld))

    def vector(self, address: int, dtype: Any, n: int) -> Array:
        assert self._driver.on_device(address, n * np.dtype(dtype).itemsize)
        return array_at(address, dtype, (n,), (1,))

    def _workspaces(self, device: int, nbytes: int, host: int, on_host: int) -> None:
        assert (nbytes, on_host) == (ON_DEVICE, ON_HOST)
        assert self._driver.on_device(device, nbytes)
        ctypes.memset(device, 255, nbytes)
        ctypes.memset(host, 255, on_host)

    def _legacy(self, letter: str, work: int, length: int) -> None:
        assert length == LENGTH
        assert self._driver.on_device(work, length * np.dtype(NP[letter]).itemsize)

    def _say(self, address: int, info: int) -> None:
        self.vector(address, np.int32, 1)[0] = info

    # -- LU, Cholesky, QR ----------------------------------------------------------------------------------------------

    def do_xgetrf(self, m: int, n: int, t: int, a: int, lda: int, p: int, c: int, *rest: int) -> None:
        *work, info = rest
        self._workspaces(*work)
        view, pivots = self.matrix(a, LETTERS[t], m, n, lda), np.zeros(min(m, n), np.int32)
        factors = np.array(view, order="F")
        factors[~np.isfinite(factors)] = 0  # cuSOLVER does so with NaN
        self._say(info, lapack(LETTERS[t] + "getrf", m, n, factors, m, pivots))
        view[...] = factors
        self.vector(p, np.int64, len(pivots))[...] = pivots

    def do_xgetrs(
        self, op: int, n: int, k: int, t: int, a: int, lda: int, p: int, tb: int, b: int, ldb: int, info: int
    ) -> None:
        assert t == tb
        factors = np.array(self.matrix(a, LETTERS[t], n, n, lda), order="F")
        view, pivots = self.matrix(b, LETTERS[t], n, k, ldb), self.vector(p, np.int64, n).astype(np.int32)
        right = np.array(view, order="F")
        self._say(info, lapack(LETTERS[t] + "getrs", "NTC"[op], n, k, factors, n, pivots, right, n))
        view[...] = right

    def do_xpotrf(self, uplo: int, n: int, t: int, a: int, lda: int, c: int, *rest: int) -> None:
        *work, info = rest
        self._workspaces(*work)
        view = self.matrix(a, LETTERS[t], n, n, lda)
        factor = np.array(view, order="F")
        self._say(info, lapack(LETTERS[t] + "potrf", "LU"[uplo], n, factor, n))
        view[...] = factor

    def do_xpotrs(
        self, uplo: int, n: int, k: int, t: int, a: int, lda: int, tb: int, b: int, ldb: int, info: int
    ) -> None:
        factor = np.array(self.matrix(a, LETTERS[t], n, n, lda), order="F")
        view = self.matrix(b, LETTERS[t], n, k, ldb)
        right = np.array(view, order="F")
        self._say(info, lapack(LETTERS[t] + "potrs", "LU"[uplo], n, k, factor, n, right, n))
        view[...] = right

    def do_potrf_batched(
        self, letter: str, handle: int, uplo: int, n: int, a: int, lda: int, info: int, k: int
    ) -> None:
        for i, address in enumerate(self.vector(a, np.uint64, k).tolist()):
            view = self.matrix(address, letter, n, n, lda)
            factor = np.array(view, order="F")
            self._say(info + 4 * i, lapack(letter + "potrf", "LU"[uplo], n, factor, n))
            view[...] = factor

    def do_xgeqrf(self, m: int, n: int, t: int, a: int, lda: int, tt: int, tau: int, c: int, *rest: int) -> None:
        *work, info = rest
        self._workspaces(*work)
        self._say(info, geqrf(self, LETTERS[t], m, n, a, lda, tau))

    def do_orgqr(
        self, letter: str, handle: int, m: int, n: int, k: int, a: int, lda: int, tau: int, w: int, lw: int, info: int
    ) -> None:
        self._legacy(letter, w, lw)
        assert m >= n >= k
        view, factors = self.matrix(a, letter, m, n, lda), np.array(self.vector(tau, NP[letter], k))
        q = np.array(view, order="F")
        name = hermitian(letter, "orgqr", "ungqr")
        self._say(info, lapack(name, m, n, k, q, m, factors, Work(NP[letter])))
        view[...] = q

    def do_ormqr(
        self, letter: str, handle: int, side: int, op: int, m: int, n: int, k: int, a: int, lda: int, tau: int, c: int,
        ldc: int, w: int, lw: int, info: int,
    ) -> None:  # fmt: skip
        self._legacy(letter, w, lw)
        order = m if side == 0 else n
        factors, tau_ = (
            np.array(self.matrix(a, letter, order, k, lda), order="F"),
            self.vector(tau, NP[letter], k).copy(),
        )
        view = self.matrix(c, letter, m, n, ldc)
        product = np.array(view, order="F")
        name = hermitian(letter, "ormqr", "unmqr")
        self._say(
            info, lapack(name, "LR"[side], "NTC"[op], m, n, k, factors, order, tau_, product, m, Work(NP[letter]))
        )
        view[...] = product

    # -- singular values and eigenvalues -------------------------------------------------------------------------------

    def do_xgesvd(
        self, ju: int, jv: int, m: int, n: int, t: int, a: int, lda: int, ts: int, s: int, tu: int, u: int, ldu: int,
        tv: int, vt: int, ldvt: int, c: int, *rest: int,
    ) -> None:  # fmt: skip
        *work, info = rest
        self._workspaces(*work)
        assert m >= n
        assert ju == jv
        letter, job = LETTERS[t], chr(ju)
        view = self.matrix(a, letter, m, n, lda)
        left, values, right = np.linalg.svd(view, full_matrices=job == "A")
        self.vector(s, REAL[letter], n)[...] = values
        if job != "N":
            self.matrix(u, letter, m, left.shape[1], ldu)[...] = left
            self.matrix(vt, letter, n, n, ldvt)[...] = right
        view[...] = 99
        self._say(info, 0)

    def do_gesvdj(
        self, letter: str, handle: int, job: int, econ: int, m: int, n: int, a: int, lda: int, s: int, u: int, ldu: int,
        v: int, ldv: int, w: int, lw: int, info: int, params: int,
    ) -> None:  # fmt: skip
        self._legacy(letter, w, lw)
        assert params in self.alive
        item, k = np.dtype(NP[letter]).itemsize, min(m, n)
        columns = (k, k) if econ else (m, n)  # of U and V, which are written to even where no vectors are wanted
        rooms = [(a, lda * n), (u, ldu * columns[0]), (v, ldv * columns[1]), (w, lw)]
        spans = sorted((at, at + count * item) for at, count in rooms)
        assert all(end <= begin for (_, end), (begin, _) in itertools.pairwise(spans)), "arrays overlap"
        view = self.matrix(a, letter, m, n, lda)
        left, values, right = np.linalg.svd(view, full_matrices=not econ)
        self.vector(s, REAL[letter], min(m, n))[...] = values
        if job:
            self.matrix(u, letter, m, left.shape[1], ldu)[...] = left
            self.matrix(v, letter, n, len(right), ldv)[...] = right.conj().T
        else:
            self.matrix(u, letter, m, columns[0], ldu)[...] = 99
            self.matrix(v, letter, n, columns[1], ldv)[...] = 99
        view[...] = 99
        self._say(info, 0)

    def do_gesvdj_batched(
        self, letter: str, handle: int, job: int, m: int, n: int, a: int, lda: int, s: int, u: int, ldu: int, v: int,
        ldv: int, w: int, lw: int, info: int, params: int, k: int,
    ) -> None:  # fmt: skip
        assert max(m, n) <= 32
        item, real = np.dtype(NP[letter]).itemsize, np.dtype(REAL[letter]).itemsize
        for i in range(k):
            at = a + i * lda * n * item, lda, s + i * min(m, n) * real
            sides = u + i * ldu * m * item, ldu, v + i * ldv * n * item, ldv
            self.do_gesvdj(letter, handle, job, 0, m, n, *at, *sides, w, lw, info + 4 * i, params)

    def _eigh(self, letter: str, job: int, uplo: int, n: int, a: int, lda: int, w: int, info: int) -> None:
        view = self.matrix(a, letter, n, n, lda)
        values, vectors = np.linalg.eigh(view, "LU"[uplo])
        self.vector(w, REAL[letter], n)[...] = values
        view[...] = vectors if job else 99
        self._say(info, 0)

    def do_xsyevd(
        self, job: int, uplo: int, n: int, t: int, a: int, lda: int, tw: int, w: int, c: int, *rest: int
    ) -> None:
        *work, info = rest
        self._workspaces(*work)
        self._eigh(LETTERS[t], job, uplo, n, a, lda, w, info)

    def do_xsyevdx(
        self, job: int, select: int, uplo: int, n: int, t: int, a: int, lda: int, vl: int, vu: int, il: int, iu: int,
        tw: int, w: int, c: int, *rest: int,
    ) -> int:  # fmt: skip
        *work, info = rest
        self._workspaces(*work)
        letter = LETTERS[t]
        view, values = self.matrix(a, letter, n, n, lda), self.vector(w, REAL[letter], n)
        every, vectors = np.linalg.eigh(view, "LU"[uplo])
        low, high = (array_at(at, REAL[letter], (1,), (1,))[0] for at in (vl, vu))
        assert select == 1002 or low < high
        chosen = np.arange(il - 1, iu) if select == 1002 else np.flatnonzero((every > low) & (every <= high))
        view[...], values[...] = 99, 99
        view[:, : len(chosen)], values[: len(chosen)] = vectors[:, chosen], every[chosen]
        self._say(info, 0)
        return len(chosen)

    def do_syevj(
        self, letter: str, handle: int, job: int, uplo: int, n: int, a: int, lda: int, w: int, work: int, length: int,
        info: int, params: int,
    ) -> None:  # fmt: skip
        self._legacy(letter, work, length)
        self._eigh(letter, job, uplo, n, a, lda, w, info)

    def do_syevj_batched(
        self, letter: str, handle: int, job: int, uplo: int, n: int, a: int, lda: int, w: int, work: int, length: int,
        info: int, params: int, k: int,
    ) -> None:  # fmt: skip
        item, real = np.dtype(NP[letter]).itemsize, np.dtype(REAL[letter]).itemsize
        for i in range(k):
            at = a + i * lda * n * item, lda, w + i * n * real
            self.do_syevj(letter, handle, job, uplo, n, *at, work, length, info + 4 * i, params)

    def do_xsyev_batched(
        self, job: int, uplo: int, n: int, t: int, a: int, lda: int, tw: int, w: int, c: int, *rest: int
    ) -> None:
        *work, info, k = rest
        self._workspaces(*work)
        item, real = np.dtype(NP[LETTERS[t]]).itemsize, np.dtype(REAL[LETTERS[t]]).itemsize
        for i in range(k):
            self._eigh(LETTERS[t], job, uplo, n, a + i * lda * n * item, lda, w + i * n * real, info + 4 * i)

    def do_sygvd(
        self, letter: str, handle: int, kind: int, job: int, uplo: int, n: int, a: int, lda: int, b: int, ldb: int,
        w: int, work: int, length: int, info: int,
    ) -> None:  # fmt: skip
        self._legacy(letter, work, length)
        view, right = self.matrix(a, letter, n, n, lda), np.array(self.matrix(b, letter, n, n, ldb), order="F")
        left, values = np.array(view, order="F"), np.zeros(n, REAL[letter])
        works = [Work(NP[letter]), *([Work(REAL[letter])] if letter in "cz" else []), Work(np.int32)]
        name = hermitian(letter, "sygvd", "hegvd")
        self._say(info, lapack(name, kind, "NV"[job], "LU"[uplo], n, left, n, right, n, values, *works))
        view[...], self.vector(w, REAL[letter], n)[...] = left if job else 99, values

    def do_xgeev(
        self, jl: int, jr: int, n: int, t: int, a: int, lda: int, tw: int, w: int, tl: int, vl: int, ldvl: int, tr: int,
        vr: int, ldvr: int, c: int, *rest: int,
    ) -> None:  # fmt: skip
        *work, info = rest
        self._workspaces(*work)
        assert jl == 0
        letter, wide = LETTERS[t], NP[LETTERS[tw]]
        view = self.matrix(a, letter, n, n, lda)
        given, right = np.array(view, order="F"), np.zeros((n, n), NP[letter], order="F")
        none, values = np.zeros(1, NP[letter]), np.zeros(n, wide)
        if letter in "cz":
            real = np.zeros(2 * n, REAL[letter])
            told = lapack(letter + "geev", "N", "NV"[jr], n, given, n, values, none, 1, right, n, Work(wide), real)
        else:
            re, im = np.zeros(n, NP[letter]), np.zeros(n, NP[letter])
            told = lapack(letter + "geev", "N", "NV"[jr], n, given, n, re, im, none, 1, right, n, Work(NP[letter]))
            values = re + 1j * im
        self.vector(w, wide, n)[...] = values
        if jr:
            self.matrix(vr, letter, n, n, ldvr)[...] = right
        view[...] = 99
        self._say(info, told)


def geqrf(memory: HostCusolver, letter: str, m: int, n: int, a: int, lda: int, tau: int) -> int:
    view, factors = memory.matrix(a, letter, m, n, lda), np.zeros(min(m, n), NP[letter])
    h = np.array(view, order="F")
    info = lapack(letter + "geqrf", m, n, h, m, factors, Work(NP[letter]))
    view[...], memory.vector(tau, NP[letter], len(factors))[...] = h, factors
    return info


class HostSolverBlas(HostCublas):
    """cuBLAS with its batches of small matrices, which the solver takes from it."""

    memory: HostCusolver

    def _addresses(self, table: int, k: int) -> list[int]:
        found: list[int] = self.memory.vector(table, np.uint64, k).tolist()
        return found

    def on_getrf_batched(self, kind: Any, n: int, a: int, lda: int, p: int, info: int, k: int) -> None:
        t = CODES[kind]
        pivots = self.memory.vector(p, np.int32, n * k).reshape(k, n)
        for i, address in enumerate(self._addresses(a, k)):
            view, rows = self.memory.matrix(address, t, n, n, lda), np.zeros(n, np.int32)
            factors = np.array(view, order="F")
            self.memory._say(info + 4 * i, lapack(t + "getrf", n, n, factors, n, rows))
            view[...], pivots[i] = factors, rows

    def on_getrs_batched(
        self, kind: Any, op: int, n: int, columns: int, a: int, lda: int, p: int, b: int, ldb: int, told: int, k: int
    ) -> None:
        t = CODES[kind]
        pivots = self.memory.vector(p, np.int32, n * k).reshape(k, n)
        for i, (left, right) in enumerate(zip(self._addresses(a, k), self._addresses(b, k), strict=True)):
            view = self.memory.matrix(right, t, n, columns, ldb)
            factors, x = np.array(self.memory.matrix(left, t, n, n, lda), order="F"), np.array(view, order="F")
            lapack(t + "getrs", "NTC"[op], n, columns, factors, n, pivots[i].copy(), x, n)
            view[...] = x

    def on_geqrf_batched(self, kind: Any, m: int, n: int, a: int, lda: int, tau: int, told: int, k: int) -> None:
        t = CODES[kind]
        for left, factors in zip(self._addresses(a, k), self._addresses(tau, k), strict=True):
            geqrf(self.memory, t, m, n, left, lda, factors)

    def on_gels_batched(
        self, kind: Any, op: int, m: int, n: int, columns: int, a: int, lda: int, c: int, ldc: int, told: int,
        info: int, k: int,
    ) -> None:  # fmt: skip
        t = CODES[kind]
        assert op == 0
        assert m >= n
        for i, (left, right) in enumerate(zip(self._addresses(a, k), self._addresses(c, k), strict=True)):
            view = self.memory.matrix(right, t, m, columns, ldc)
            matrix, x = np.array(self.memory.matrix(left, t, m, n, lda), order="F"), np.array(view, order="F")
            # LAPACK answers 0 for a matrix of zeros, without a look at its rank; cuBLAS looks
            failed = lapack(t + "gels", "N", m, n, columns, matrix, m, x, m, Work(NP[t])) if matrix.any() else 1
            self.memory._say(info + 4 * i, failed)
            view[...] = x

    def on_trsm_batched(
        self, kind: Any, side: int, uplo: int, op: int, diag: int, m: int, n: int, alpha: int, a: int, lda: int, b: int,
        ldb: int, k: int,
    ) -> None:  # fmt: skip
        for left, right in zip(self._addresses(a, k), self._addresses(b, k), strict=True):
            self.on_trsm(kind, side, uplo, op, diag, m, n, alpha, left, lda, right, ldb)
