"""Many products in one call.

What is shown is the mapping: which operand goes where, transposed or not, with which leading dimension, which triangle,
which type, in which pointer mode, over a stand-in for cuBLAS that executes column-major calls on host memory.
"""

import itertools

import numpy as np
import pytest
from blas_host import BOTH, LAYOUTS, Host, close, numbers
from host_cublas import HostCublas
from host_driver import HostDriver

from callboard.core.layout import layout_of
from callboard.kernel.blas import GemmBatched, GemmGrouped, GemmStridedBatched
from callboard.testing.session import SessionArray


def stack(host: Host, batch: int, rows: int, cols: int, dtype: str, layout: str) -> SessionArray:
    if layout == "row":
        return host.session.put(host.values((batch, rows, cols), dtype))
    if layout == "column":
        return _swapped(host.session.put(host.values((batch, cols, rows), dtype)))
    return host.session.put(host.values((batch, rows + 1, cols + 2), dtype))[:, 1:, 2:]


def _swapped(x: SessionArray) -> SessionArray:
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


@pytest.mark.few(6)
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
