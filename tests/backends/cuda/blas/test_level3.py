"""Matrices.

What is shown is the mapping: which operand goes where, transposed or not, with which leading dimension, which triangle,
which type, in which pointer mode, over a stand-in for cuBLAS that executes column-major calls on host memory.
"""

import itertools
from typing import Any

import numpy as np
import pytest
from blas_host import BOTH, FLOATS, LAYOUTS, Host, close, conjugated, numbers

from callboard.core.errors import ShapeError
from callboard.kernel.blas import Axpy, Geam, Hemm, Herk, Symm, Syrk, Trmm, Trsm
from callboard.testing.session import SessionArray


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


@pytest.mark.parametrize("alpha, k", [(0.0, 3), (0.5, 0)])
def test_herk_that_adds_nothing_clears_the_imaginary_diagonal(host: Host, alpha: float, k: int) -> None:
    """cuBLAS returns early; twice, since a plan is launched on any stream."""
    a, c = host.matrix(5, k, "c64"), host.matrix(5, 5, "c64")
    for _ in range(2):
        want = host.get(c)
        np.fill_diagonal(want, want.diagonal().real)
        host.session.submit(Herk(a=a, c=c, alpha=alpha, beta=1.0))
        close(host.get(c), want, "c64")


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
