"""Every BLAS op on a GPU, in its main forms."""

import itertools
import time
from typing import Any

import numpy as np
from gpu_checks import TOLERANCE, check, close, each, same_bytes, spaced, values, wide

from callboard.core.dtype import DTYPES
from callboard.kernel import blas
from callboard.testing.session import LibrarySession

FLOATS = ("f32", "f64", "c64", "c128")
HALVES = ("f16", "bf16")


@each([*HALVES, *FLOATS, "i8"])
def gemm(s: LibrarySession, dtype: str) -> None:
    result = "i32" if dtype == "i8" else dtype
    for m, n, k in ((64, 64, 64), (5, 3, 7), (1, 33, 100), (128, 4, 12)):
        for ta, tb, row in itertools.product((False, True), (False, True), (False, True)):
            a, b = values((k, m) if ta else (m, k), dtype), values((n, k) if tb else (k, n), dtype)
            c = values((m, n), result)
            want = 2 * wide(a.T if ta else a) @ wide(b.T if tb else b) - 3 * wide(c)
            theirs = s.put(c) if row else s.put(c.T.copy()).T
            op = blas.Gemm(a=s.put(a), b=s.put(b), c=theirs, alpha=2, beta=-3, transpose_a=ta, transpose_b=tb)
            close(s.get(s.submit(op)), want, result, 4 * k)


@each([*HALVES, *FLOATS, "i8"])
def gemm_of_nothing_and_device_factors(s: LibrarySession, dtype: str) -> None:
    result, scale = ("i32", "i32") if dtype == "i8" else (dtype, {"f16": "f32", "bf16": "f32"}.get(dtype, dtype))
    c = values((4, 8), result)
    a0, b0 = s.empty((4, 0), dtype), s.empty((0, 8), dtype)
    close(s.get(s.submit(blas.Gemm(a=a0, b=b0, c=s.put(c), beta=2))), 2 * wide(c), result)
    close(s.get(s.submit(blas.Gemm(a=a0, b=b0))), np.zeros((4, 8)), result)
    a, b = values((4, 16), dtype), values((16, 8), dtype)
    for on_device in itertools.product((False, True), (False, True)):
        alpha, beta = (s.put(np.asarray(v), scale) if d else v for v, d in zip((2, -1), on_device, strict=True))
        got = s.get(s.submit(blas.Gemm(a=s.put(a), b=s.put(b), c=s.put(c), alpha=alpha, beta=beta)))
        close(got, 2 * wide(a) @ wide(b) - wide(c), result, 64)


@check
def tf32_rounds_and_f32_does_not(s: LibrarySession) -> str:
    a, b = values((256, 256), "f32"), values((256, 256), "f32")
    want = wide(a) @ wide(b)
    errors = []
    for tf32 in (None, False, True):
        got = s.get(s.submit(blas.Gemm(a=s.put(a), b=s.put(b), tf32=tf32)))
        errors.append(float(np.abs(got - want).max()))
    assert errors[0] < 1e-4
    assert errors[1] < 1e-4
    assert 1e-4 < errors[2] < 1e-1
    return f"largest errors {errors}"


@each([*HALVES, *FLOATS])
def level_1(s: LibrarySession, dtype: str) -> None:
    for incx, incy in itertools.product((1, 2, -1, -3), (1, -2)):
        u, v = values(30, dtype), values(30, dtype)
        x, y = spaced(s, u, incx), spaced(s, v, incy)
        s.submit(blas.Axpy(x=x, y=y, alpha=-1.5))
        close(s.get(y), wide(v) - 1.5 * wide(u), dtype)
        v = s.get(y)
        same_bytes(s.get(s.submit(blas.Copy(x=x))), u)
        if DTYPES[dtype].is_complex:
            close(s.submit(blas.Dotc(x=x, y=y)), np.sum(wide(u).conj() * wide(v)), dtype, 30)
            close(s.submit(blas.Dotu(x=x, y=y)), np.sum(wide(u) * wide(v)), dtype, 30)
        else:
            close(s.submit(blas.Dot(x=x, y=y)), np.sum(wide(u) * wide(v)), dtype, 100)
        close(s.submit(blas.Nrm2(x=x)), np.linalg.norm(wide(u)), dtype, 30)
        close(s.submit(blas.Asum(x=x)), np.sum(np.abs(wide(u).real) + np.abs(wide(u).imag)), dtype, 100)
        if incx > 0:
            size = np.abs(wide(u).real) + np.abs(wide(u).imag)
            assert s.submit(blas.Iamax(x=x)) == np.argmax(size)
            assert s.submit(blas.Iamin(x=x)) == np.argmin(size)
        s.submit(blas.Swap(x=x, y=y))
        same_bytes(s.get(x), v)
        same_bytes(s.get(y), u)
        s.submit(blas.Copy(x=x, out=y))
        same_bytes(s.get(y), v)
        s.submit(blas.Scal(x=x, alpha=s.put(np.asarray(2), {"f16": "f32", "bf16": "f32"}.get(dtype, dtype))))
        close(s.get(x), 2 * wide(v), dtype)
        if dtype in FLOATS:
            u, v = s.get(x), s.get(y)
            s.submit(blas.Rot(x=x, y=y, c=0.6, s=0.8))
            close(s.get(x), 0.6 * wide(u) + 0.8 * wide(v), dtype)
            close(s.get(y), 0.6 * wide(v) - 0.8 * wide(u), dtype)


@each(HALVES)
def norms_of_halves(s: LibrarySession, dtype: str) -> str:
    """By kernels of ours: one block, many blocks, more elements than one pass of all threads takes."""
    for n, inc in ((1, 1), (255, 1), (4096, 1), (4097, 3), (1_000_003, 1), (1_000_003, 2), (9_000_001, 1)):
        u = (values(n, "f32") / 128).astype(DTYPES[dtype].np)
        x = spaced(s, u, inc)
        np.testing.assert_allclose(s.submit(blas.Nrm2(x=x)), np.linalg.norm(wide(u)), rtol=TOLERANCE[dtype])
        np.testing.assert_allclose(s.submit(blas.Asum(x=x)), np.sum(np.abs(wide(u))), rtol=TOLERANCE[dtype])
    for special in (np.inf, -np.inf, np.nan):
        u = np.ones(100_000, DTYPES[dtype].np)
        u[77_777] = special
        for op in (blas.Nrm2, blas.Asum):
            np.testing.assert_equal(s.submit(op(x=s.put(u))), abs(special))
    x, out = s.put(np.ones(1 << 26, DTYPES[dtype].np)), s.empty((), dtype)
    library: Any = s._library("blas")
    stream: Any = s._streams["blas"]
    plan = library.plan_norm(blas.Nrm2(x=x, out=out))

    def once() -> None:
        library.reduction(stream, plan, x.address, out.address)
        stream.synchronize()

    once()
    start = time.perf_counter()
    for _ in range(20):
        once()
    took = (time.perf_counter() - start) / 20
    return f"{x.nbytes / took / 1e9:.0f} GB/s over {x.nbytes >> 20} MiB"


@each([*HALVES, *FLOATS])
def level_2(s: LibrarySession, dtype: str) -> None:
    is_complex = DTYPES[dtype].is_complex
    for row, transpose, conj, inc in itertools.product(
        (True, False), (False, True), (False, True) if is_complex else (False,), (1, 2, -1)
    ):
        a = values((12, 9), dtype)
        m, n = (9, 12) if transpose else (12, 9)
        u, v = values(n, dtype), values(m, dtype)
        mine = s.put(a) if row else s.put(a.T.copy()).T
        x, y = spaced(s, u, inc), spaced(s, v, inc)
        w = wide(a.T if transpose else a)
        want = 2 * (w.conj() if conj else w) @ wide(u) - wide(v)
        close(
            s.get(s.submit(blas.Gemv(a=mine, x=x, y=y, alpha=2, beta=-1, transpose=transpose, conj=conj))),
            want,
            dtype,
            30,
        )
    if dtype in HALVES:
        return
    for op, row, inc in itertools.product(
        (blas.Geru, blas.Gerc) if is_complex else (blas.Ger,), (True, False), (1, -2)
    ):
        a, u, v = values((6, 5), dtype), values(6, dtype), values(5, dtype)
        mine = s.put(a) if row else s.put(a.T.copy()).T
        x = spaced(s, u, inc)
        second = wide(v).conj() if op is blas.Gerc else wide(v)
        close(s.get(s.submit(op(x=x, y=s.put(v), a=mine, alpha=2))), wide(a) + 2 * np.outer(wide(u), second), dtype)


@each(FLOATS)
def level_3(s: LibrarySession, dtype: str) -> None:
    a, b, c = values((6, 6), dtype), values((6, 4), dtype), values((6, 6), dtype)
    wa, wb, wc = wide(a), wide(b), wide(c)
    mask = np.tri(6, dtype=bool)
    close(s.get(s.submit(blas.Geam(a=s.put(a), b=s.put(c), beta=-2, transpose_b=True))), wa - 2 * wc.T, dtype)
    got = s.get(s.submit(blas.Syrk(a=s.put(b), c=s.put(c), beta=1.0)))
    close(got, np.where(mask, wb @ wb.T + wc, wc), dtype, 6)
    full = np.tril(wa) + np.tril(wa, -1).T
    close(s.get(s.submit(blas.Symm(a=s.put(a), b=s.put(b)))), full @ wb, dtype, 6)
    tri = np.tril(wa) + 6 * np.eye(6)
    mine = s.put(tri.astype(DTYPES[dtype].np))
    for transpose in (False, True):
        t = tri.T if transpose else tri
        x = s.get(s.submit(blas.Trsm(a=mine, b=s.put(b), transpose=transpose)))
        close(t @ wide(x), wb, dtype, 30)
        close(s.get(s.submit(blas.Trmm(a=mine, b=s.put(b), transpose=transpose))), t @ wb, dtype, 30)
    if DTYPES[dtype].is_complex:
        got = s.get(s.submit(blas.Herk(a=s.put(b), c=s.put(c))))
        close(got, np.where(mask, wb @ wb.conj().T, wc), dtype, 6)
        half = np.tril(wa)
        np.fill_diagonal(half, half.diagonal().real)
        full = half + np.tril(wa, -1).conj().T
        close(s.get(s.submit(blas.Hemm(a=s.put(a), b=s.put(b)))), full @ wb, dtype, 6)


@each([*HALVES, *FLOATS, "i8"])
def batches(s: LibrarySession, dtype: str) -> None:
    result = "i32" if dtype == "i8" else dtype
    for m, n, k in ((8, 4, 16), (5, 3, 7)):
        a, b, c = values((6, m, k), dtype), values((6, k, n), dtype), values((6, m, n), result)
        want = 2 * wide(a) @ wide(b) - wide(c)
        x, y, z = s.put(a), s.put(b), s.put(c)
        op: Any = blas.GemmStridedBatched(a=x, b=y, c=z, alpha=2, beta=-1)
        close(s.get(s.submit(op)), want, result, 4 * k)
        one = blas.GemmStridedBatched(a=x[:1], b=y)
        close(s.get(s.submit(one)), wide(a)[:1] @ wide(b), result, 4 * k)
        op = blas.GemmBatched(a=tuple(x[i] for i in range(6)), b=tuple(y[i] for i in range(6)), c=z, alpha=2, beta=-1)
        for _ in range(3):
            close(s.get(s.submit(op)), want, result, 4 * k)
    if dtype != "i8":
        a, b = values((500, 4, 4), dtype), values((500, 4, 4), dtype)  # more addresses than one launch writes
        x, y = s.put(a), s.put(b)
        straight = blas.GemmBatched(a=tuple(x[i] for i in range(500)), b=tuple(y[i] for i in range(500)))
        turned = blas.GemmBatched(a=tuple(x[-1 - i] for i in range(500)), b=tuple(y[-1 - i] for i in range(500)))
        close(s.get(s.submit(straight)), wide(a) @ wide(b), result, 16)
        close(s.get(s.submit(turned)), (wide(a) @ wide(b))[::-1], result, 16)
    shapes = [(8, 8, 8), (5, 3, 7), (8, 8, 8), (4, 4, 0), (0, 3, 2), (16, 4, 8)]
    lefts, rights = [values((m, k), dtype) for m, _, k in shapes], [values((k, n), dtype) for _, n, k in shapes]
    addends = [values((m, n), result) for m, n, _ in shapes]
    outs = tuple(s.put(c) for c in addends)
    s.submit(blas.GemmGrouped(a=tuple(map(s.put, lefts)), b=tuple(map(s.put, rights)), c=outs, alpha=2, beta=-1))
    for a, b, c, out in zip(lefts, rights, addends, outs, strict=True):
        close(s.get(out), 2 * wide(a) @ wide(b) - wide(c), result, 32)
