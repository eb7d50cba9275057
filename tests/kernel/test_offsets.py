"""Integers of a caller's that must rise, in every dtype; and arguments of ``dev.cutlass`` that are named in errors."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import callboard as cb

Tree = cb.EpilogueVisitorTree


@pytest.fixture
def dev() -> Iterator[Any]:
    with cb.sync.device("cpu", isolation="thread") as device:
        yield device


@pytest.mark.parametrize("dtype", ["i4", "i8", "u4", "u8"])
@pytest.mark.parametrize("falling", [[0, 3, 1, 4], [0, (1 << 31) - 1, 2, 4], [0, 1 << 63, 2, 4]])
def test_falling_offsets_are_refused(dev: Any, dtype: str, falling: list[int]) -> None:
    if max(falling) > np.iinfo(dtype).max:
        pytest.skip("beyond the dtype")
    a, b = dev.zeros((4, 2)), dev.zeros((3, 2, 2))
    with pytest.raises(cb.ShapeError, match="it must rise from 0 to 4"):
        dev.cutlass.grouped_gemm(a, b, np.array(falling, dtype))
    assert dev.cutlass.grouped_gemm(a, b, np.array([0, 1, 1, 4], dtype)).shape == (4, 2)


@pytest.mark.parametrize("dtype", ["u4", "u8"])
def test_falling_pointers_of_scipy_are_refused(dev: Any, dtype: str) -> None:
    matrix = sp.csr_array(np.eye(3, dtype="f4"))
    matrix.indptr = np.array([0, 2, 1, 3], dtype)
    with pytest.raises(cb.ShapeError, match="indptr must rise"):
        dev.sparse.from_scipy(matrix)
    matrix.indptr = np.array([0, 1, 2, 3], dtype)
    assert dev.sparse.from_scipy(matrix).nnz == 3


@pytest.mark.parametrize("dtype", ["u4", "u8"])
def test_unsigned_indices_of_scipy_are_sorted(dev: Any, dtype: str) -> None:
    matrix = sp.csr_array((np.array([1, 2, 3], "f4"), np.array([2, 0, 1]), np.array([0, 2, 3])), shape=(2, 3))
    matrix.indices = matrix.indices.astype(dtype)
    kept = dev.sparse.from_scipy(matrix)
    np.testing.assert_array_equal(kept.indices.get(), [0, 2, 1])
    np.testing.assert_array_equal(kept.values.get(), [2, 1, 3])


REFUSED: list[tuple[Callable[[Any], Any], type[Exception], str]] = [
    (
        lambda dev: dev.cutlass.gemm(dev.zeros((2, 3)), dev.zeros((3, 3)), epilogue=Tree().bias(), bias=np.zeros(3)),
        TypeError,
        r"cutlass\.gemm: bias is ndarray; pass a GpuRef \(dev\.put",
    ),
    (
        lambda dev: dev.cutlass.plan(np.zeros((3, 3)), epilogue=Tree().bias()),
        TypeError,
        r"cutlass\.plan: b is ndarray",
    ),
    (
        lambda dev: dev.cutlass.plan(dev.zeros((3, 3)), epilogue=Tree().bias(), bias=dev.zeros(3)).refit(bias=1.0),
        TypeError,
        r"cutlass plan: bias is float; pass a GpuRef",
    ),
    (
        lambda dev: dev.cutlass.plan(dev.zeros((3, 3)), epilogue=Tree().bias(), bias=dev.zeros(3)).refit(
            bias=dev.zeros(4)
        ),
        cb.ShapeError,
        r"cutlass plan: bias is f32\[4\], expected f32\[3\]",
    ),
    (
        lambda dev: dev.cutlass.plan(dev.zeros((3, 3))).refit(b=dev.zeros((3, 3)).T),
        cb.ShapeError,
        r"cutlass plan: b is .* row-major: pass dev\.copy\(b\)",
    ),
    (
        lambda dev: dev.cutlass.conv(dev.zeros((1, 4, 4, 8)), dev.zeros((2, 3, 3, 7))),
        cb.ShapeError,
        r"images \[1, 4, 4, 8\] have 8 channels, filters \[2, 3, 3, 7\] have 7",
    ),
    (
        lambda dev: cb.GroupedExperts(dev, np.ones((2, 3, 4), "i4"), np.ones((2, 4, 3), "i4")),
        TypeError,
        "up is int32; pass weights of f16, bf16, f32 or f64",
    ),
]


@pytest.mark.parametrize("call, kind, says", REFUSED)
def test_errors_name_the_argument(dev: Any, call: Callable[[Any], Any], kind: type[Exception], says: str) -> None:
    with pytest.raises(kind, match=says):
        call(dev)


def test_values_that_a_dtype_lacks_are_its_ends(dev: Any) -> None:
    values = dev.put(np.array([np.nan, np.inf, -np.inf], np.float32))
    zero, eye = dev.zeros((1, 3)), dev.put(np.eye(3, dtype=np.float32))

    def rounded(dtype: str) -> Any:
        tree = Tree().bias().quantize(dtype)
        return dev.cutlass.gemm(zero, eye, epilogue=tree, bias=values).get()[0]

    assert rounded("i8").tolist() == [-128, 127, -128]
    found = rounded("f8_e4m3").astype(np.float32)
    assert np.isnan(found[0])
    assert found[1:].tolist() == [448.0, -448.0]
