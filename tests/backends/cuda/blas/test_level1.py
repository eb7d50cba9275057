"""Vectors.

What is shown is the mapping: which operand goes where, transposed or not, with which leading dimension, which triangle,
which type, in which pointer mode, over a stand-in for cuBLAS that executes column-major calls on host memory.
"""

import itertools

import numpy as np
import pytest
from blas_host import FLOATS, HALVES, TOLERANCE, Host, close, numbers
from host_cublas import HostCublas
from host_driver import HostDriver

from callboard.core.dtype import DTYPES
from callboard.core.errors import LibraryError
from callboard.kernel.blas import Asum, Axpy, Copy, Dot, Dotc, Dotu, Iamax, Iamin, Nrm2, Rot, Scal, Swap

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


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("n", [4096, 4097, 100_000])
def test_norms_of_halves_in_one_block_and_in_many(host: Host, driver: HostDriver, dtype: str, n: int) -> None:
    """cuBLAS has no sum of halves; a sum in halves would come to a halt at 2048."""
    x = host.vector(n, dtype)
    u = host.get(x)
    driver.calls.clear()
    assert host.session.submit(Nrm2(x=x)) == pytest.approx(np.linalg.norm(u), rel=TOLERANCE[dtype])
    assert host.session.submit(Asum(x=x[::2])) == pytest.approx(np.sum(np.abs(u[::2])), rel=TOLERANCE[dtype])
    kernels = [call for call in driver.calls if call.startswith("kernel")]
    assert (f"kernel nrm2_{dtype}_end" in kernels) == (n > 4096)
    assert (f"kernel asum_{dtype}_end" in kernels) == (n > 8192)


def test_the_text_of_an_error_names_the_op(host: Host, binding: HostCublas) -> None:
    """One method plans both."""
    binding.fails["sasum"] = 15
    with pytest.raises(LibraryError, match=r"^asum: status 15$"):
        host.session.submit(Asum(x=host.vector(3, "f32")))
