"""Products.

What is shown is the mapping: which operand goes where, transposed or not, with which leading dimension, which triangle,
which type, in which pointer mode, over a stand-in for cuBLAS that executes column-major calls on host memory.
"""

import itertools
from typing import Any

import numpy as np
import pytest
from blas_host import BOTH, FLOATS, HALVES, LAYOUTS, Host, close, conjugated, numbers
from host_cublas import HostCublas

from callboard.core.dtype import DTYPES
from callboard.core.errors import ShapeError
from callboard.kernel.blas import Gemm, Trsm


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
