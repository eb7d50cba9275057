"""Symmetric, Hermitian, triangular and banded matrices.

What is shown is the mapping: which operand goes where, which triangle, with which leading dimension and increment, over
a stand-in for cuBLAS that executes column-major calls on host memory.
"""

import itertools
from typing import Any

import numpy as np
import pytest
from blas_host import BOTH, LAYOUTS, Host, close, conjugated, numbers
from tests.blas_structures import banded, inside, packed, stored, symmetric, within

import callboard.kernel.blas as blas
from callboard.core.dtype import DTYPES
from callboard.core.errors import ShapeError

PRODUCTS = (blas.Symv, blas.Hemv, blas.Spmv, blas.Hpmv, blas.Sbmv, blas.Hbmv)
RANK_1 = (blas.Her, blas.Hpr)
UPDATES = (*RANK_1, blas.Her2, blas.Hpr2, blas.Syr2, blas.Spr2)
TRIANGULAR = (blas.Trmv, blas.Trsv, blas.Tpmv, blas.Tpsv, blas.Tbmv, blas.Tbsv)
N, K = 5, 2


def put(host: Host, array: Any, storage: str, layout: str) -> Any:
    if storage == "banded":
        return host.session.put(np.ascontiguousarray(array.T)).T
    if storage == "packed":
        return host.session.put(array)
    extra = 3 if layout.startswith("wide") else 0
    turned = array.T if layout.endswith("column") else array
    whole = np.zeros((len(array) + extra,) * 2, array.dtype)
    whole[extra:, extra:] = turned
    ref = host.session.put(whole)[extra:, extra:]
    return ref.T if layout.endswith("column") else ref


def cases(*classes: Any) -> Any:
    return [pytest.param(cls, d.name, id=f"{cls.__name__}-{d}") for cls in classes for d in cls.dtypes]


@pytest.mark.parametrize("on_device", BOTH)
@pytest.mark.parametrize("cls, dtype", cases(*PRODUCTS))
def test_products(host: Host, cls: Any, dtype: str, on_device: bool) -> None:
    alpha, beta = numbers(dtype)
    runs = (1, 2) if cls is blas.Hemv else (1, 2, -1)
    layouts = LAYOUTS if cls.storage == "square" else LAYOUTS[:1]
    for lower, layout, incx, incy in itertools.product(BOTH, layouts, runs, runs):
        matrix = symmetric(host.values((N, N), dtype), cls.hermitian)
        matrix = within(matrix, K, K) if cls.storage == "banded" else matrix
        a = put(host, stored(matrix, cls.storage, lower, K, cls.hermitian), cls.storage, layout)
        x, y, out = host.vector(N, dtype, incx), host.vector(N, dtype), host.vector(N, dtype, incy)
        want = alpha * matrix @ host.get(x) + beta * host.get(y)
        factors = [host.scalar(one, dtype) if on_device else one for one in (alpha, beta)]
        op = cls(a=a, x=x, y=y, out=out, alpha=factors[0], beta=factors[1], lower=lower)
        close(host.get(host.session.submit(op)), want, dtype, N)


@pytest.mark.parametrize("cls, dtype", cases(*TRIANGULAR))
def test_triangular(host: Host, cls: Any, dtype: str) -> None:
    layouts = LAYOUTS if cls.storage == "square" else LAYOUTS[:1]
    refused = 0
    for lower, layout, inc, transpose, conj, unit in itertools.product(BOTH, layouts, (1, 2, -1), BOTH, BOTH, BOTH):
        matrix = np.where(inside(N, lower), host.values((N, N), dtype), 0) + 3 * np.eye(N)
        matrix = (within(matrix, K, K) if cls.storage == "banded" else matrix).astype(DTYPES[dtype].np)
        a = put(host, stored(matrix, cls.storage, lower, K), cls.storage, layout)
        whole = matrix.copy()
        if unit:
            np.fill_diagonal(whole, 1)
        x = host.vector(N, dtype, inc)
        whole, old = conjugated(whole, transpose, conj), host.get(x)
        want = np.linalg.solve(whole, old) if cls.__name__.endswith("sv") else whole @ old
        try:
            host.session.submit(cls(a=a, x=x, lower=lower, transpose=transpose, conj=conj, unit_diagonal=unit))
        except ShapeError:
            assert DTYPES[dtype].is_complex
            assert conj
            refused += 1
            continue
        close(host.get(x), want, dtype, 4 * N)
    assert refused == (len(layouts) * 12 if DTYPES[dtype].is_complex else 0)


@pytest.mark.parametrize("on_device", BOTH)
@pytest.mark.parametrize("cls, dtype", cases(*UPDATES))
def test_updates(host: Host, cls: Any, dtype: str, on_device: bool) -> None:
    rank_1, turned = cls in RANK_1, DTYPES[dtype].is_complex and not cls.packed
    hermitian = rank_1 or cls.hermitian
    alpha = 0.5 if rank_1 else numbers(dtype)[0]
    storage = "packed" if cls.packed else "square"
    for lower, layout, inc in itertools.product(BOTH, LAYOUTS, (1, 2) if turned else (1, 2, -1)):
        matrix = symmetric(host.values((N, N), dtype), hermitian)
        a = put(host, stored(matrix, storage, lower, 0, hermitian), storage, layout)
        x, y = host.vector(N, dtype, inc), host.vector(N, dtype, 3)
        u, v = host.get(x), host.get(y)
        added = alpha * np.outer(u, v.conj() if hermitian else v)
        added = added + (added.conj().T if hermitian else added.T)
        if rank_1:
            added = alpha * np.outer(u, u.conj())
        scale = DTYPES[dtype].real.name if rank_1 else dtype
        factor = host.scalar(alpha, scale) if on_device else alpha
        second = {} if rank_1 else {"y": y}
        host.session.submit(cls(x=x, a=a, alpha=factor, lower=lower, **second))
        if storage == "packed":
            close(host.get(a), packed(matrix + added, lower, hermitian), dtype)
        else:
            mask, got = inside(N, lower), host.get(a)
            close(got[mask], (matrix + added)[mask], dtype)
            assert np.isnan(got[~mask]).all()


@pytest.mark.parametrize("on_device", BOTH)
@pytest.mark.parametrize("cls, dtype", cases(blas.Syr2k, blas.Her2k))
def test_rank_2k(host: Host, cls: Any, dtype: str, on_device: bool) -> None:
    alpha, real = numbers(dtype)[0], DTYPES[dtype].real.name if cls.hermitian else dtype
    for lower, layout, transpose in itertools.product(BOTH, LAYOUTS, BOTH):
        shape = (3, N) if transpose else (N, 3)
        a, b = host.matrix(*shape, dtype, layout), host.matrix(*shape, dtype, layout)
        c = symmetric(host.values((N, N), dtype), cls.hermitian)
        ref = put(host, stored(c, "square", lower, 0), "square", layout)
        u, v = (conjugated(host.get(one), transpose, cls.hermitian and transpose) for one in (a, b))
        turned = [one.conj().T if cls.hermitian else one.T for one in (u, v)]
        other = np.conj(alpha) if cls.hermitian else alpha
        want = alpha * u @ turned[1] + other * v @ turned[0] - 1.5 * c
        factors = (host.scalar(alpha, dtype), host.scalar(-1.5, real)) if on_device else (alpha, -1.5)
        op = cls(a=a, b=b, c=ref, alpha=factors[0], beta=factors[1], transpose=transpose, lower=lower)
        host.session.submit(op)
        mask = inside(N, lower)
        close(host.get(ref)[mask], want[mask], dtype, 8)


@pytest.mark.parametrize("dtype", ["f32", "f64", "c64", "c128"])
def test_gbmv(host: Host, dtype: str) -> None:
    alpha, beta = numbers(dtype)
    for rows, below, above, transpose, inc in itertools.product((3, 5, 7), (0, 2), (0, 1), BOTH, (1, -2)):
        matrix = within(host.values((rows, N), dtype), below, above)
        a = put(host, banded(matrix, below, above), "banded", "")
        whole = conjugated(matrix, transpose, transpose)
        x, y = host.vector(whole.shape[1], dtype, inc), host.vector(whole.shape[0], dtype)
        want = alpha * whole @ host.get(x) + beta * host.get(y)
        flags = {"below": below, "rows": rows, "transpose": transpose, "conj": transpose}
        op = blas.Gbmv(a=a, x=x, y=y, alpha=alpha, beta=beta, **flags)
        close(host.get(host.session.submit(op)), want, dtype, N)


def test_no_rows_leave_the_addend(host: Host) -> None:
    """cuBLAS returns at once where the matrix has no rows, and leaves the result as it was."""
    band, x, y = host.session.put(np.zeros((3, 4), "f4")).T, host.vector(0, "f32"), host.vector(3, "f32")
    op = blas.Gbmv(a=band, x=x, y=y, beta=2.0, below=1, rows=0, transpose=True)
    close(host.get(host.session.submit(op)), 2 * host.get(y), "f32", 1)


def test_nothing(host: Host) -> None:
    empty, none = host.vector(0, "f32"), host.matrix(0, 0, "f32")
    assert host.session.submit(blas.Symv(a=none, x=empty)).shape == (0,)
    host.session.submit(blas.Trsv(a=none, x=empty))
    host.session.submit(blas.Syr2(a=none, x=empty, y=empty))
    host.session.submit(blas.Syr2k(a=host.matrix(0, 3, "f32"), b=host.matrix(0, 3, "f32"), c=none))
