"""What only the stand-in for cuBLAS shows: which call is made, in which pointer mode, and with which memory.

The suites show what it comes to: the stand-in executes column-major calls on host memory, exactly where their arguments
say.
"""

from typing import Any

import numpy as np
import pytest
from blas_host import BOTH, FLOATS, HALVES, TOLERANCE, Host, close, numbers
from host_cublas import HostCublas
from host_driver import HostDriver

from callboard.core.dtype import DTYPES
from callboard.core.errors import LibraryError
from callboard.kernel.blas import (
    Asum,
    Axpy,
    Copy,
    Dot,
    Dotc,
    Gbmv,
    Gemm,
    GemmBatched,
    GemmGrouped,
    GemmStridedBatched,
    Gerc,
    Nrm2,
    Scal,
    Swap,
    Symv,
    Syr2,
    Syr2k,
    Trsm,
    Trsv,
)


def stack(host: Host, batch: int, rows: int, cols: int, dtype: str) -> Any:
    return host.session.put(host.values((batch, rows, cols), dtype))


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


def test_aligned_i8_batches_go_to_cublas(host: Host, binding: HostCublas) -> None:
    a, b = stack(host, 3, 8, 4, "i8"), stack(host, 3, 4, 4, "i8")
    got = host.get(host.session.submit(GemmStridedBatched(a=a, b=b)))
    np.testing.assert_array_equal(got, host.get(a) @ host.get(b))
    assert binding.calls[-1][0] == "gemm_strided_batched_ex"


@pytest.mark.parametrize("dtype", ["f16", "f64", "c64", "i8"])
@pytest.mark.parametrize("on_device", BOTH)
def test_groups_are_one_call_where_cublas_has_it(host: Host, binding: HostCublas, dtype: str, on_device: bool) -> None:
    scale = {"f16": "f32", "i8": "i32"}.get(dtype, dtype)
    a, b = host.matrix(4, 8, dtype), host.matrix(8, 4, dtype)
    c = host.matrix(4, 4, "i32" if dtype == "i8" else dtype)
    alpha = host.scalar(2, scale) if on_device else 2
    host.session.submit(GemmGrouped(a=(a,), b=(b,), c=(c,), alpha=alpha))
    close(host.get(c), 2 * host.get(a) @ host.get(b), c.dtype.name, 8)
    at_once = "gemm_grouped_batched_ex" in [name for name, _ in binding.calls]
    assert at_once == (not on_device and dtype in ("f16", "f64"))


def test_more_pointers_than_there_is_room_for_at_first(host: Host) -> None:
    for count in (1, 700):
        a, b = host.session.put(host.values((count, 2, 3), "f32")), host.session.put(host.values((count, 3, 2), "f32"))
        op = GemmBatched(a=tuple(a[i] for i in range(count)), b=tuple(b[i] for i in range(count)))
        close(host.get(host.session.submit(op)), host.get(a) @ host.get(b), "f32", 3)


def test_addresses_travel_in_launches_and_not_in_host_memory(host: Host, driver: HostDriver) -> None:
    """3 x 200 of them, in two launches; the host's memory may change before the stream comes to a copy of it."""
    a, b = host.session.put(host.values((200, 2, 3), "f32")), host.session.put(host.values((200, 3, 2), "f32"))
    op = GemmBatched(a=tuple(a[i] for i in range(200)), b=tuple(b[i] for i in range(200)))
    want = host.get(a) @ host.get(b)
    host.session.submit(op)  # this makes the handle, and the plan
    for _ in range(2):
        driver.calls.clear()
        got = host.session.submit(op)
        assert [call for call in driver.calls if call.startswith(("kernel", "memcpy"))] == ["kernel addresses"] * 2
        close(host.get(got), want, "f32", 3)


@pytest.mark.parametrize("inc", [1, -2])
def test_conjugated_updates_of_rows_are_a_product_or_a_kernel(host: Host, binding: HostCublas, inc: int) -> None:
    """cuBLAS conjugates the other vector of the transpose, and its products take no negative increments."""
    x, y, a = host.vector(5, "c64", inc), host.vector(3, "c64", 2), host.matrix(5, 3, "c64")
    want = host.get(a) + 2 * np.outer(host.get(x), host.get(y).conj())
    host.session.submit(Gerc(x=x, y=y, a=a, alpha=2))
    close(host.get(a), want, "c64")
    assert bool(binding.calls) == (inc > 0)


@pytest.mark.parametrize("dtype", [*HALVES, "f32", "c64"])
def test_no_call_waits_for_an_inner_product(host: Host, binding: HostCublas, dtype: str) -> None:
    x, y = host.vector(8, dtype), host.vector(8, dtype, -2)
    host.session.submit((Dotc if DTYPES[dtype].is_complex else Dot)(x=x, y=y))
    assert binding.mode == 1


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


def test_no_rows_leave_the_addend(host: Host) -> None:
    """cuBLAS returns at once where the matrix has no rows, and leaves the result as it was."""
    band, x, y = host.session.put(np.zeros((3, 4), "f4")).T, host.vector(0, "f32"), host.vector(3, "f32")
    op = Gbmv(a=band, x=x, y=y, beta=2.0, below=1, rows=0, transpose=True)
    close(host.get(host.session.submit(op)), 2 * host.get(y), "f32", 1)


def test_empty_matrices_are_no_call(host: Host, binding: HostCublas) -> None:
    empty, none = host.vector(0, "f32"), host.matrix(0, 0, "f32")
    assert host.session.submit(Symv(a=none, x=empty)).shape == (0,)
    host.session.submit(Trsv(a=none, x=empty))
    host.session.submit(Syr2(a=none, x=empty, y=empty))
    host.session.submit(Syr2k(a=host.matrix(0, 3, "f32"), b=host.matrix(0, 3, "f32"), c=none))
    assert binding.calls == []
