"""Every BLAS op over a stand-in for cuBLAS that executes column-major calls on host memory.

What is shown here is the mapping: which factor goes where, transposed or not, with which leading dimension, which
triangle, which type, in which pointer mode. The arithmetic is the stand-in's.
"""

import itertools
from typing import Any

import numpy as np
import pytest
from host_cublas import HostCublas

from callboard.core.dtype import DTYPES
from callboard.core.errors import BackendUnavailable, LibraryError, OutOfMemory, ShapeError
from callboard.kernel.blas import (
    Asum,
    Axpy,
    Copy,
    Dot,
    Dotc,
    Dotu,
    Geam,
    Gemm,
    GemmBatched,
    GemmGrouped,
    GemmStridedBatched,
    Gemv,
    Ger,
    Gerc,
    Geru,
    Hemm,
    Herk,
    Iamax,
    Iamin,
    Nrm2,
    Rot,
    Scal,
    Swap,
    Symm,
    Syrk,
    Trmm,
    Trsm,
)
from callboard.testing.session import LibrarySession, SessionArray

FLOATS = ("f32", "f64", "c64", "c128")
HALVES = ("f16", "bf16")
TOLERANCE = {"f16": 4e-3, "bf16": 4e-2, "f32": 2e-5, "c64": 2e-5, "f64": 1e-12, "c128": 1e-12, "i8": 0, "i32": 0}
LAYOUTS = ("row", "column", "wide row", "wide column")
BOTH = (False, True)


class Host:
    """A host array and its twin on the device."""

    def __init__(self, session: LibrarySession, seed: int) -> None:
        self.session = session
        self.rng = np.random.default_rng(seed)

    def values(self, shape: tuple[int, ...], dtype: str) -> "np.ndarray[Any, Any]":
        if dtype in ("i8", "i32"):
            return self.rng.integers(-7, 8, shape).astype(DTYPES[dtype].np)
        x = self.rng.uniform(-1, 1, shape)
        if DTYPES[dtype].is_complex:
            x = x + 1j * self.rng.uniform(-1, 1, shape)
        return x.astype(DTYPES[dtype].np)

    def matrix(self, rows: int, cols: int, dtype: str, layout: str = "row") -> SessionArray:
        """A matrix of random values that lies as ``layout`` says; ``wide`` ones are parts of larger arrays."""
        extra = 3 if layout.startswith("wide") else 0
        if layout.endswith("row"):
            return self.session.put(self.values((rows + extra, cols + extra), dtype))[extra:, extra:]
        return self.session.put(self.values((cols + extra, rows + extra), dtype))[extra:, extra:].T

    def vector(self, n: int, dtype: str, inc: int = 1) -> SessionArray:
        whole = self.session.put(self.values((n * abs(inc),), dtype))
        return whole[::inc]

    def scalar(self, value: Any, dtype: str) -> SessionArray:
        return self.session.put(np.asarray(value), dtype)

    def get(self, x: SessionArray) -> "np.ndarray[Any, Any]":
        """In double precision."""
        x = self.session.get(x)
        return x.astype(np.complex128 if x.dtype.kind == "c" else np.float64)


def close(got: Any, want: Any, dtype: str, size: int = 1) -> None:
    scale = TOLERANCE[dtype] * max(1.0, np.sqrt(size))
    np.testing.assert_allclose(got, want, rtol=scale, atol=scale)


@pytest.fixture
def host(session: LibrarySession) -> Host:
    return Host(session, 5)


def numbers(dtype: str) -> tuple[Any, Any]:
    if DTYPES[dtype].is_complex:
        return 0.5 - 1.5j, -0.25 + 2j
    return (3, -2) if dtype in ("i8", "i32") else (0.5, -1.5)


def conjugated(x: "np.ndarray[Any, Any]", transpose: bool, conj: bool) -> "np.ndarray[Any, Any]":
    x = x.T if transpose else x
    return x.conj() if conj else x


# -- gemm --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["f32", "c128", "f16", "i8"])
def test_gemm_of_all_layouts_and_flags(host: Host, dtype: str) -> None:
    m, n, k = 5, 3, 4
    alpha, beta = numbers(dtype)
    result = "i32" if dtype == "i8" else dtype
    refused = executed = 0
    for la, lb, lo, ta, tb in itertools.product(LAYOUTS, LAYOUTS, LAYOUTS, BOTH, BOTH):
        a = host.matrix(*((k, m) if ta else (m, k)), dtype, la)
        b = host.matrix(*((n, k) if tb else (k, n)), dtype, lb)
        out, c = host.matrix(m, n, result, lo), host.matrix(m, n, result, lb)
        for conj in [(False, False), (True, True)] if DTYPES[dtype].is_complex else [(False, False)]:
            want = alpha * conjugated(host.get(a), ta, conj[0]) @ conjugated(host.get(b), tb, conj[1])
            want = want + beta * host.get(c)
            try:
                op = Gemm(
                    a=a, b=b, out=out, c=c, alpha=alpha, beta=beta, transpose_a=ta, transpose_b=tb,
                    conj_a=conj[0], conj_b=conj[1],
                )  # fmt: skip
                got = host.get(host.session.submit(op))
            except ShapeError:
                assert any(conj)
                refused += 1
                continue
            executed += 1
            close(got, want, result, k)
    assert executed > refused


@pytest.mark.parametrize("dtype", [*HALVES, *FLOATS, "i8"])
def test_gemm_makes_its_output(host: Host, dtype: str) -> None:
    a, b = host.matrix(8, 12, dtype), host.matrix(12, 4, dtype, "column")
    out = host.session.submit(Gemm(a=a, b=b))
    assert out.dtype.name == ("i32" if dtype == "i8" else dtype)
    close(host.get(out), host.get(a) @ host.get(b), out.dtype.name, 12)


@pytest.mark.parametrize("dtype, name", [("f32", "gemm_ex"), ("c64", "gemm_ex")])
def test_tf32_is_a_compute_type(host: Host, binding: HostCublas, dtype: str, name: str) -> None:
    a, b = host.matrix(4, 4, dtype), host.matrix(4, 4, dtype)
    host.session.submit(Gemm(a=a, b=b, tf32=True))
    assert binding.calls[-1][0] == name
    assert binding.calls[-1][1][-2] == 77
    host.session.submit(Gemm(a=a, b=b, tf32=False))
    assert binding.calls[-1][0] == {"f32": "sgemm", "c64": "cgemm"}[dtype]


@pytest.mark.parametrize("dtype", ["f16", "f32", "c64", "f64", "i8"])
@pytest.mark.parametrize("on_device", [(True, True), (True, False), (False, True)])
def test_factors_on_the_device(host: Host, binding: HostCublas, dtype: str, on_device: tuple[bool, bool]) -> None:
    result = "i32" if dtype == "i8" else dtype
    scale = {"f16": "f32", "i8": "i32"}.get(dtype, dtype)
    alpha, beta = numbers(dtype)
    a, b, c = host.matrix(4, 8, dtype), host.matrix(8, 4, dtype), host.matrix(4, 4, result)
    want = alpha * (host.get(a) @ host.get(b)) + beta * host.get(c)
    factors = [host.scalar(v, scale) if d else v for v, d in zip((alpha, beta), on_device, strict=True)]
    close(host.get(host.session.submit(Gemm(a=a, b=b, c=c, alpha=factors[0], beta=factors[1]))), want, result, 8)
    assert binding.mode == 1
    close(host.get(host.session.submit(Gemm(a=a, b=b))), host.get(a) @ host.get(b), result, 8)
    assert binding.mode == 0


def test_the_same_plan_with_other_numbers(host: Host) -> None:
    a, b = host.matrix(3, 3, "f64"), host.matrix(3, 3, "f64")
    for alpha in (1.0, 2.0, 2.0, -0.5, 0.0, 1.0):
        got = host.get(host.session.submit(Gemm(a=a, b=b, alpha=alpha)))
        close(got, alpha * (host.get(a) @ host.get(b)), "f64", 3)


def test_gemm_in_place_and_beside(host: Host) -> None:
    a, b, c = host.matrix(4, 5, "f32"), host.matrix(5, 3, "f32"), host.matrix(4, 3, "f32", "wide row")
    before = host.get(c)
    product = host.get(a) @ host.get(b)
    beside = host.session.submit(Gemm(a=a, b=b, c=c, beta=2.0))
    close(host.get(beside), product + 2 * before, "f32", 5)
    np.testing.assert_array_equal(host.get(c), before)
    host.session.submit(Gemm(a=a, b=b, c=c, out=c, beta=2.0))
    close(host.get(c), product + 2 * before, "f32", 5)


def test_c_is_not_read_while_beta_is_0(host: Host) -> None:
    a, b = host.matrix(4, 5, "f32"), host.matrix(5, 3, "f32")
    c = host.session.put(np.full((4, 3), np.nan, "f4"))
    close(host.get(host.session.submit(Gemm(a=a, b=b, c=c, beta=0.0))), host.get(a) @ host.get(b), "f32", 5)


@pytest.mark.parametrize("dtype", [*HALVES, *FLOATS, "i8"])
def test_an_inner_extent_of_0(host: Host, dtype: str) -> None:
    result = "i32" if dtype == "i8" else dtype
    a, b, c = host.matrix(4, 0, dtype), host.matrix(0, 3, dtype), host.matrix(4, 3, result, "column")
    np.testing.assert_array_equal(host.get(host.session.submit(Gemm(a=a, b=b))), np.zeros((4, 3)))
    close(host.get(host.session.submit(Gemm(a=a, b=b, c=c, beta=2))), 2 * host.get(c), result)


def test_an_empty_result_is_no_call(host: Host, binding: HostCublas) -> None:
    host.session.submit(Gemm(a=host.matrix(0, 4, "f32"), b=host.matrix(4, 3, "f32")))
    host.session.submit(Trsm(a=host.matrix(0, 0, "f32"), b=host.matrix(0, 3, "f32")))
    assert binding.calls == []


def test_extents_beyond_32_bits_take_the_64_bit_call(host: Host, binding: HostCublas) -> None:
    a, b = host.matrix(1, 4, "f32"), host.matrix(4, 4, "f32")
    library = host.session._library("blas")
    product = library.cublas.function("sgemm", 2**31)  # type: ignore[attr-defined]
    product(0xB1A5, 0, 0, 4, 1, 4, *_cell(library), b.address, 4, a.address, 4, *_cell(library), a.address, 4)
    assert binding.calls[-1][0] == "sgemm_64"


def _cell(library: Any) -> tuple[int]:
    library.cublas.point(1)
    return (library.cublas.one(DTYPES["f32"]),)


@pytest.mark.parametrize("shape", [(5, 4, 8), (8, 4, 6), (8, 8, 8)])
def test_i8_of_extents_that_cublas_refuses(host: Host, binding: HostCublas, shape: tuple[int, int, int]) -> None:
    m, n, k = shape
    a, b = host.matrix(m, k, "i8"), host.matrix(k, n, "i8")
    np.testing.assert_array_equal(host.get(host.session.submit(Gemm(a=a, b=b))), host.get(a) @ host.get(b))
    shifted = host.session.put(host.values((m, k + 4), "i8"))[:, 1 : k + 1]
    got = host.get(host.session.submit(Gemm(a=shifted, b=b)))
    np.testing.assert_array_equal(got, host.get(shifted) @ host.get(b))
    assert [name for name, _ in binding.calls] == (["gemm_ex"] if shape == (8, 8, 8) else [])


# -- the rest of level 3 -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["f64", "c64"])
def test_geam(host: Host, dtype: str) -> None:
    alpha, beta = numbers(dtype)
    executed = 0
    for la, lb, lo, ta, tb in itertools.product(LAYOUTS, LAYOUTS, LAYOUTS, BOTH, BOTH):
        a = host.matrix(*((3, 5) if ta else (5, 3)), dtype, la)
        b = host.matrix(*((3, 5) if tb else (5, 3)), dtype, lb)
        out = host.matrix(5, 3, dtype, lo)
        for conj in BOTH if dtype == "c64" else (False,):
            want = alpha * conjugated(host.get(a), ta, conj) + beta * conjugated(host.get(b), tb, conj)
            try:
                op = Geam(
                    a=a, b=b, out=out, alpha=alpha, beta=beta, transpose_a=ta, transpose_b=tb, conj_a=conj, conj_b=conj
                )
                got = host.get(host.session.submit(op))
            except ShapeError:
                assert conj
                continue
            executed += 1
            close(got, want, dtype)
    assert executed >= 256


def test_geam_in_place(host: Host) -> None:
    a, b = host.matrix(4, 3, "f32"), host.matrix(3, 4, "f32")
    want = 2 * host.get(a) + host.get(b).T
    host.session.submit(Geam(a=a, b=b, out=a, alpha=2.0, transpose_b=True))
    close(host.get(a), want, "f32")


@pytest.mark.parametrize("dtype", FLOATS)
def test_syrk(host: Host, dtype: str) -> None:
    alpha, beta = numbers(dtype)
    for la, lc, transpose, lower in itertools.product(LAYOUTS, LAYOUTS, BOTH, BOTH):
        a = host.matrix(*((3, 5) if transpose else (5, 3)), dtype, la)
        c = host.matrix(5, 5, dtype, lc)
        x, before = conjugated(host.get(a), transpose, False), host.get(c)
        full = alpha * x @ x.T + beta * before
        want = np.where(np.tri(5, dtype=bool) if lower else np.tri(5, dtype=bool).T, full, before)
        host.session.submit(Syrk(a=a, c=c, alpha=alpha, beta=beta, transpose=transpose, lower=lower))
        close(host.get(c), want, dtype, 3)


@pytest.mark.parametrize("dtype", ["c64", "c128"])
def test_herk(host: Host, dtype: str) -> None:
    for order, wide, transpose, lower in itertools.product(("row", "column"), ("", "wide "), BOTH, BOTH):
        a = host.matrix(*((3, 5) if transpose else (5, 3)), dtype, wide + order)
        c = host.matrix(5, 5, dtype, order)
        x, before = conjugated(host.get(a), transpose, transpose), host.get(c)
        hermitian = before.copy()
        np.fill_diagonal(hermitian, hermitian.diagonal().real)
        full = 0.5 * x @ x.conj().T - 1.5 * hermitian
        want = np.where(np.tri(5, dtype=bool) if lower else np.tri(5, dtype=bool).T, full, before)
        host.session.submit(Herk(a=a, c=c, alpha=0.5, beta=-1.5, transpose=transpose, lower=lower))
        close(host.get(c), want, dtype, 3)


def symmetric(a: "np.ndarray[Any, Any]", lower: bool, hermitian: bool) -> "np.ndarray[Any, Any]":
    half = np.tril(a) if lower else np.triu(a)
    strict = np.tril(a, -1) if lower else np.triu(a, 1)
    if hermitian:
        np.fill_diagonal(half, half.diagonal().real)
    return half + (strict.conj() if hermitian else strict).T


@pytest.mark.parametrize("op, dtype", [(Symm, "f32"), (Symm, "c128"), (Hemm, "c64")])
def test_symm_and_hemm(host: Host, op: Any, dtype: str) -> None:
    alpha, beta = numbers(dtype)
    executed = 0
    for la, lb, lc, left, lower in itertools.product(LAYOUTS, LAYOUTS, LAYOUTS, BOTH, BOTH):
        order = 4 if left else 3
        a, b, c = host.matrix(order, order, dtype, la), host.matrix(4, 3, dtype, lb), host.matrix(4, 3, dtype, lc)
        out = host.matrix(4, 3, dtype, lb)
        full, x = symmetric(host.get(a), lower, op is Hemm), host.get(b)
        want = alpha * (full @ x if left else x @ full) + beta * host.get(c)
        try:
            message = op(a=a, b=b, out=out, c=c, alpha=alpha, beta=beta, left=left, lower=lower)
            got = host.get(host.session.submit(message))
        except ShapeError:
            assert op is Hemm
            continue
        executed += 1
        close(got, want, dtype, 4)
    assert executed >= 128


@pytest.mark.parametrize("op", [Trsm, Trmm])
@pytest.mark.parametrize("dtype", ["f64", "c128"])
def test_triangular(host: Host, op: Any, dtype: str) -> None:
    alpha = numbers(dtype)[0]
    conjs = BOTH if dtype == "c128" else (False,)
    executed = 0
    cases = itertools.product(("row", "wide column"), LAYOUTS, BOTH, BOTH, BOTH, BOTH, conjs)
    for la, lb, left, lower, transpose, unit, conj in cases:
        order = 4 if left else 3
        a, b = host.matrix(order, order, dtype, la), host.matrix(4, 3, dtype, lb)
        host.session.submit(Axpy(x=host.session.put(10 * np.eye(order), dtype), y=_dense(host, a), alpha=1.0))
        x, before = host.get(a), host.get(b)
        x = np.tril(x, -1 if unit else 0) if lower else np.triu(x, 1 if unit else 0)
        x = conjugated(x + np.eye(order) if unit else x, transpose, conj)
        try:
            host.session.submit(
                op(a=a, b=b, alpha=alpha, left=left, lower=lower, transpose=transpose, conj=conj, unit_diagonal=unit)
            )
        except ShapeError:
            assert conj
            continue
        executed += 1
        got = host.get(b)
        if op is Trmm:
            close(got, alpha * (x @ before if left else before @ x), dtype, 4)
        else:
            close(x @ got if left else got @ x, alpha * before, dtype, 1 << 12)
    assert executed >= 128


def _dense(host: Host, a: SessionArray) -> SessionArray:
    """``a`` where it is one vector, else a copy: enough to make its diagonal large where that is simple."""
    return a if a.layout.contiguous else host.session.put(host.session.get(a))


# -- level 2 -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [*HALVES, *FLOATS])
def test_gemv(host: Host, dtype: str) -> None:
    alpha, beta = numbers(dtype)
    conjs = BOTH if DTYPES[dtype].is_complex else (False,)
    for layout, transpose, conj, incx, incy in itertools.product(LAYOUTS, BOTH, conjs, (1, 2, -1), (1, 3, -2)):
        a = host.matrix(*((4, 5) if transpose else (5, 4)), dtype, layout)
        x, y, out = host.vector(4, dtype, incx), host.vector(5, dtype, -incy), host.vector(5, dtype, incy)
        want = alpha * conjugated(host.get(a), transpose, conj) @ host.get(x) + beta * host.get(y)
        op = Gemv(a=a, x=x, out=out, y=y, alpha=alpha, beta=beta, transpose=transpose, conj=conj)
        close(host.get(host.session.submit(op)), want, dtype, 4)


@pytest.mark.parametrize("dtype", ["f16", "f32", "c64"])
def test_gemv_without_columns_or_rows(host: Host, dtype: str) -> None:
    y = host.vector(3, dtype, 2)
    empty = host.vector(0, dtype)
    out = host.session.submit(Gemv(a=host.matrix(3, 0, dtype), x=empty, y=y, beta=2.0))
    close(host.get(out), 2 * host.get(y), dtype)
    out = host.session.submit(Gemv(a=host.matrix(3, 0, dtype), x=empty))
    np.testing.assert_array_equal(host.get(out), np.zeros(3))
    assert host.session.submit(Gemv(a=host.matrix(0, 3, dtype), x=y)).shape == (0,)


def test_gemv_adds_to_y_in_place(host: Host) -> None:
    a, x, y = host.matrix(5, 4, "f64"), host.vector(4, "f64"), host.vector(5, "f64", -1)
    want = host.get(a) @ host.get(x) + 0.5 * host.get(y)
    host.session.submit(Gemv(a=a, x=x, y=y, out=y, beta=0.5))
    close(host.get(y), want, "f64", 4)


@pytest.mark.parametrize("on_device", BOTH)
@pytest.mark.parametrize("op, dtype", [(Ger, "f32"), (Ger, "f64"), (Geru, "c64"), (Gerc, "c64"), (Gerc, "c128")])
def test_ger(host: Host, op: Any, dtype: str, on_device: bool) -> None:
    alpha = numbers(dtype)[0]
    for layout, incx, incy in itertools.product(LAYOUTS, (1, 2, -1), (1, 3, -2)):
        x, y, a = host.vector(5, dtype, incx), host.vector(3, dtype, incy), host.matrix(5, 3, dtype, layout)
        second = host.get(y).conj() if op is Gerc else host.get(y)
        want = host.get(a) + alpha * np.outer(host.get(x), second)
        host.session.submit(op(x=x, y=y, a=a, alpha=host.scalar(alpha, dtype) if on_device else alpha))
        close(host.get(a), want, dtype)


# -- level 1 -----------------------------------------------------------------------------------------------------------

INCREMENTS = list(itertools.product((1, 2, -1, -3), (1, -2)))


@pytest.mark.parametrize("dtype", [*HALVES, *FLOATS])
@pytest.mark.parametrize("incx, incy", INCREMENTS)
def test_two_vectors(host: Host, dtype: str, incx: int, incy: int) -> None:
    alpha = numbers(dtype)[0]
    x, y = host.vector(7, dtype, incx), host.vector(7, dtype, incy)
    u, v = host.get(x), host.get(y)
    host.session.submit(Axpy(x=x, y=y, alpha=alpha))
    close(host.get(y), alpha * u + v, dtype)
    v = host.get(y)
    np.testing.assert_array_equal(host.get(host.session.submit(Copy(x=x))), u)
    host.session.submit(Swap(x=x, y=y))
    np.testing.assert_array_equal(host.get(x), v)
    np.testing.assert_array_equal(host.get(y), u)
    host.session.submit(Copy(x=x, out=y))
    np.testing.assert_array_equal(host.get(y), v)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("incx, incy", INCREMENTS)
def test_rot(host: Host, dtype: str, incx: int, incy: int) -> None:
    cosine, sine = 0.6, numbers(dtype)[1]
    real = DTYPES[dtype].real.name
    for c, s in ((cosine, sine), (host.scalar(cosine, real), sine), (cosine, host.scalar(sine, dtype))):
        x, y = host.vector(6, dtype, incx), host.vector(6, dtype, incy)
        u, v = host.get(x), host.get(y)
        host.session.submit(Rot(x=x, y=y, c=c, s=s))
        close(host.get(x), cosine * u + sine * v, dtype)
        close(host.get(y), cosine * v - np.conj(sine) * u, dtype)


@pytest.mark.parametrize("dtype", [*HALVES, *FLOATS])
@pytest.mark.parametrize("inc", [1, 2, -3])
def test_one_vector(host: Host, dtype: str, inc: int) -> None:
    x = host.vector(9, dtype, inc)
    u = host.get(x)
    assert host.session.submit(Nrm2(x=x)) == pytest.approx(np.linalg.norm(u), rel=4 * TOLERANCE[dtype])
    assert host.session.submit(Asum(x=x)) == pytest.approx(
        np.sum(np.abs(u.real) + np.abs(u.imag)), rel=4 * TOLERANCE[dtype]
    )
    alpha = numbers(dtype)[0]
    host.session.submit(Scal(x=x, alpha=alpha))
    close(host.get(x), alpha * u, dtype)
    if inc > 0:
        magnitude = np.abs(u.real) + np.abs(u.imag)
        assert host.session.submit(Iamax(x=x)) == np.argmax(magnitude)
        assert host.session.submit(Iamin(x=x)) == np.argmin(magnitude)


@pytest.mark.parametrize("dtype", [*HALVES, *FLOATS])
@pytest.mark.parametrize("incx, incy", INCREMENTS)
def test_inner_products(host: Host, binding: HostCublas, dtype: str, incx: int, incy: int) -> None:
    x, y = host.vector(8, dtype, incx), host.vector(8, dtype, incy)
    u, v = host.get(x), host.get(y)
    if DTYPES[dtype].is_complex:
        close(host.session.submit(Dotu(x=x, y=y)), np.sum(u * v), dtype, 8)
        close(host.session.submit(Dotc(x=x, y=y)), np.sum(u.conj() * v), dtype, 8)
    else:
        close(host.session.submit(Dot(x=x, y=y)), np.sum(u * v), dtype, 8)
    assert binding.mode == 1  # nothing waited for a result


@pytest.mark.parametrize("dtype", [*HALVES, *FLOATS])
def test_empty_vectors(host: Host, binding: HostCublas, dtype: str) -> None:
    x, y = host.vector(0, dtype), host.vector(0, dtype)
    assert host.session.submit(Nrm2(x=x)) == 0
    assert host.session.submit(Asum(x=x)) == 0
    assert host.session.submit((Dotc if DTYPES[dtype].is_complex else Dot)(x=x, y=y)) == 0
    for op in (Axpy(x=x, y=y), Scal(x=x, alpha=2.0), Swap(x=x, y=y), Copy(x=x, out=y)):
        host.session.submit(op)
    assert binding.calls == []


# -- batches -----------------------------------------------------------------------------------------------------------


def stack(host: Host, batch: int, rows: int, cols: int, dtype: str, layout: str) -> SessionArray:
    if layout == "row":
        return host.session.put(host.values((batch, rows, cols), dtype))
    if layout == "column":
        return _swapped(host.session.put(host.values((batch, cols, rows), dtype)))
    return host.session.put(host.values((batch, rows + 1, cols + 2), dtype))[:, 1:, 2:]


def _swapped(x: SessionArray) -> SessionArray:
    from callboard.core.layout import layout_of

    (b, r, c), (sb, sr, sc) = x.layout.shape, x.layout.strides
    return SessionArray(x.block, layout_of(x.dtype, (b, c, r), (sb, sc, sr)), x.offset)


@pytest.mark.parametrize("dtype", ["f16", "f32", "c64", "i8"])
def test_strided_batches(host: Host, dtype: str) -> None:
    alpha, beta = numbers(dtype)
    result = "i32" if dtype == "i8" else dtype
    layouts = ("row", "column", "part")
    for la, lb, lo, ta, tb in itertools.product(layouts, layouts, layouts, BOTH, BOTH):
        a = stack(host, 3, *((4, 5) if ta else (5, 4)), dtype, la)
        b = stack(host, 1 if la == "part" else 3, *((2, 4) if tb else (4, 2)), dtype, lb)
        out, c = stack(host, 3, 5, 2, result, lo), stack(host, 3, 5, 2, result, la)
        x = host.get(a).swapaxes(1, 2) if ta else host.get(a)
        y = host.get(b).swapaxes(1, 2) if tb else host.get(b)
        want = alpha * x @ y + beta * host.get(c)
        op = GemmStridedBatched(a=a, b=b, out=out, c=c, alpha=alpha, beta=beta, transpose_a=ta, transpose_b=tb)
        close(host.get(host.session.submit(op)), want, result, 4)


def test_aligned_i8_batches_go_to_cublas(host: Host, binding: HostCublas) -> None:
    a, b = stack(host, 3, 8, 4, "i8", "row"), stack(host, 3, 4, 4, "i8", "row")
    got = host.get(host.session.submit(GemmStridedBatched(a=a, b=b)))
    np.testing.assert_array_equal(got, host.get(a) @ host.get(b))
    assert binding.calls[-1][0] == "gemm_strided_batched_ex"


@pytest.mark.parametrize("dtype", ["bf16", "f64", "c128", "i8"])
@pytest.mark.parametrize("k", [4, 0])
@pytest.mark.parametrize("lo", ["row", "column", "part"])
def test_pointer_batches(host: Host, dtype: str, k: int, lo: str) -> None:
    alpha, beta = numbers(dtype)
    result = "i32" if dtype == "i8" else dtype
    for count in (3, 1, 700):  # the last needs more room on the device than there is at first
        a = [host.matrix(k, 5, dtype, "row") for _ in range(min(count, 3))] * max(1, count // 3)
        b = [host.matrix(k, 2, dtype, "wide column") for _ in a]
        out, c = stack(host, len(a), 5, 2, result, lo), stack(host, len(a), 5, 2, result, "row")
        want = [alpha * host.get(x).T @ host.get(y) for x, y in zip(a, b, strict=True)] + beta * host.get(c)
        op = GemmBatched(a=tuple(a), b=tuple(b), out=out, c=c, alpha=alpha, beta=beta, transpose_a=True)
        close(host.get(host.session.submit(op)), want, result, 4)
        if count == 1 and lo != "row":
            break


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32", "f64", "c64", "i8"])
@pytest.mark.parametrize("on_device", BOTH)
def test_groups(host: Host, binding: HostCublas, dtype: str, on_device: bool) -> None:
    alpha, beta = numbers(dtype)
    result = "i32" if dtype == "i8" else dtype
    scale = {"f16": "f32", "bf16": "f32", "i8": "i32"}.get(dtype, dtype)
    shapes = [(4, 4, 4), (5, 3, 2), (4, 4, 4), (3, 3, 0), (0, 3, 2), (1, 6, 4)]
    a = [host.matrix(m, k, dtype, LAYOUTS[i % 4]) for i, (m, n, k) in enumerate(shapes)]
    b = [host.matrix(k, n, dtype, LAYOUTS[i // 2]) for i, (m, n, k) in enumerate(shapes)]
    c = [host.matrix(m, n, result, LAYOUTS[(i + 1) % 4]) for i, (m, n, k) in enumerate(shapes)]
    before = [host.get(x) for x in c]
    factors = [host.scalar(v, scale) if on_device else v for v in (alpha, beta)]
    op = GemmGrouped(a=tuple(a), b=tuple(b), c=tuple(c), alpha=factors[0], beta=factors[1])
    host.session.submit(op)
    for x, y, z, old in zip(a, b, c, before, strict=True):
        close(host.get(z), alpha * host.get(x) @ host.get(y) + beta * old, result, 4)
    at_once = "gemm_grouped_batched_ex" in [name for name, _ in binding.calls]
    assert at_once == (not on_device and dtype in ("f16", "bf16", "f32", "f64"))


# -- the handle --------------------------------------------------------------------------------------------------------


def test_a_failed_call_is_a_library_error(host: Host, binding: HostCublas) -> None:
    a = host.matrix(4, 4, "f32")
    binding.fails["sgemm"] = 13
    with pytest.raises(LibraryError, match="sgemm: status 13") as caught:
        host.session.submit(Gemm(a=a, b=a))
    assert (caught.value.lib, caught.value.code) == ("cublas", 13)
    binding.fails["ssyrk"] = 3
    with pytest.raises(OutOfMemory, match="syrk"):
        host.session.submit(Syrk(a=a, c=host.matrix(4, 4, "f32")))


def test_a_handle_that_cannot_be_made(host: Host, binding: HostCublas, monkeypatch: pytest.MonkeyPatch) -> None:
    binding.fails["create"] = 1
    with pytest.raises(LibraryError, match="cublasCreate"):
        host.session.submit(Nrm2(x=host.vector(3, "f32")))
    monkeypatch.setattr(HostCublas, "create", _missing)
    with pytest.raises(BackendUnavailable, match=r"libcublas.*callboard\[cuda13\]"):
        host.session.submit(Nrm2(x=host.vector(3, "f32")))


def _missing(self: HostCublas) -> int:
    raise RuntimeError("Failed to dlopen libcublas.so.13")


def test_closing_gives_everything_back(host: Host, binding: HostCublas, driver: Any) -> None:
    host.session.submit(Nrm2(x=host.vector(3, "f32")))
    host.session.close()
    assert binding.calls[-1][0] == "destroy"
    assert "primary_release" in driver.calls
    assert driver.pinned == {}
    assert not [a for a, b in driver.blocks.items() if b.nbytes >= 1 << 20]


def test_warm_up_multiplies_once(host: Host, binding: HostCublas) -> None:
    host.session._library("blas").warm_up()
    assert [name for name, _ in binding.calls] == ["sgemm"]
