"""A matrix and vectors.

What is shown is the mapping: which operand goes where, transposed or not, with which leading dimension, which triangle,
which type, in which pointer mode, over a stand-in for cuBLAS that executes column-major calls on host memory.
"""

import itertools
from typing import Any

import numpy as np
import pytest
from blas_host import BOTH, FLOATS, HALVES, LAYOUTS, Host, close, conjugated, numbers

from callboard.core.dtype import DTYPES
from callboard.kernel.blas import Gemv, Ger, Gerc, Geru, Spr, Syr


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


@pytest.mark.parametrize("on_device", BOTH)
@pytest.mark.parametrize("dtype", FLOATS)
def test_syr(host: Host, dtype: str, on_device: bool) -> None:
    alpha = numbers(dtype)[0]
    for layout, inc, lower in itertools.product(LAYOUTS, (1, 3, -2), BOTH):
        x, a = host.vector(5, dtype, inc), host.matrix(5, 5, dtype, layout)
        inside = np.tri(5, dtype=bool) if lower else np.tri(5, dtype=bool).T
        want = host.get(a) + np.where(inside, alpha * np.outer(host.get(x), host.get(x)), 0)
        host.session.submit(Syr(x=x, a=a, alpha=host.scalar(alpha, dtype) if on_device else alpha, lower=lower))
        close(host.get(a), want, dtype)


@pytest.mark.parametrize("on_device", BOTH)
@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_spr(host: Host, dtype: str, on_device: bool) -> None:
    alpha = numbers(dtype)[0]
    for inc, lower in itertools.product((1, 3, -2), BOTH):
        x, a = host.vector(5, dtype, inc), host.vector(15, dtype)
        inside = np.tril_indices(5) if lower else np.triu_indices(5)
        want = host.get(a) + alpha * np.outer(host.get(x), host.get(x))[inside]
        host.session.submit(Spr(x=x, a=a, alpha=host.scalar(alpha, dtype) if on_device else alpha, lower=lower))
        close(host.get(a), want, dtype)
