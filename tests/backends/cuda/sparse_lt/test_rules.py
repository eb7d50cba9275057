"""Ops unsupported by cuSPARSELt raise at the call, with a cure; no GPU is needed."""

import re
from typing import Any

import pytest

from callboard.backends.cuda.sparse_lt import CudaSparseLt
from callboard.core.dtype import DTYPES
from callboard.core.layout import layout_of
from callboard.core.operand import Placeholder
from callboard.kernel.sparse_lt import Compress, Decompress, Linear, Matmul, StructuredRef
from callboard.kernel.sparse_lt.structured import compressed_bytes


def array(dtype: str, shape: tuple[int, ...], strides: tuple[int, ...] | None = None) -> Any:
    return Placeholder(layout_of(DTYPES[dtype], shape, strides))


def structured(dtype: Any, shape: tuple[int, ...]) -> StructuredRef:
    return StructuredRef(array("u8", (compressed_bytes(DTYPES[dtype], shape),)), dtype, shape)


@pytest.mark.parametrize("dtype, tile", [("f16", 16), ("bf16", 16), ("f32", 8), ("i8", 32), ("f8_e4m3", 32)])
def test_extents_are_multiples_of_32_bytes(dtype: str, tile: int) -> None:
    says = rf"x is .*; on tensor cores both extents must be multiples of {tile}: pad it with 0"
    assert CudaSparseLt.why_not(Compress(x=array(dtype, (tile, 3 * tile)))) is None
    for shape in ((tile // 2, tile), (tile, tile // 2), (2, tile + tile // 2, tile)):
        assert_says(Compress(x=array(dtype, shape)), says)
        assert_says(Decompress(a=structured(dtype, shape)), says.replace("x is", "a is"))


def test_rows_begin_where_they_can_be_loaded() -> None:
    assert CudaSparseLt.why_not(Compress(x=array("f16", (32, 32), (48, 1)))) is None
    assert_says(Compress(x=array("f16", (32, 32), (40, 1))), r"its strides must be multiples of 16: pass dev.copy\(x\)")
    a = structured("f16", (32, 32))
    assert CudaSparseLt.why_not(Matmul(a=a, b=array("f16", (32, 16), (24, 1)))) is None
    assert_says(Matmul(a=a, b=array("f16", (32, 16), (20, 1))), r"b is .* multiples of 8: pass dev.copy\(b\)")
    assert_says(
        Matmul(a=a, b=array("f16", (32, 16)), out=array("f16", (32, 16), (1, 34))),
        r"out is .* multiples of 8: pass dev.copy\(out\)",
    )


@pytest.mark.parametrize("dtype, tile", [("f16", 8), ("f32", 4), ("i8", 16), ("f8_e5m2", 16)])
def test_the_dense_factor_is_a_multiple_of_16_bytes_wide(dtype: str, tile: int) -> None:
    a = structured(dtype, (64, 64))
    assert CudaSparseLt.why_not(Matmul(a=a, b=array(dtype, (64, tile), (1, 64)))) is None
    assert_says(Matmul(a=a, b=array(dtype, (64, tile + 1), (1, 64))), rf"it must have a multiple of {tile} columns")
    assert_says(Linear(x=array(dtype, (tile + 1, 64)), w=a), rf"it must have a multiple of {tile} rows")


@pytest.mark.parametrize("dtype", ["f32", "i8", "f8_e4m3", "f8_e5m2"])
def test_factors_of_8_bits_and_f32_have_their_inner_axis_adjacent(dtype: str) -> None:
    a = structured(dtype, (64, 64))
    assert CudaSparseLt.why_not(Linear(x=array(dtype, (32, 64)), w=a)) is None
    assert_says(Matmul(a=a, b=array(dtype, (64, 32))), r"inner axis adjacent: pass the view dev.put\(b.T.copy\(\)\).T")
    assert_says(Linear(x=array(dtype, (32, 64), (1, 32)), w=a), r"inner axis adjacent: pass dev.copy\(x\)")


def test_addend_and_result_lie_alike() -> None:
    a, b = structured("f16", (32, 32)), array("f16", (32, 16))
    c = array("f16", (32, 16), (1, 32))
    assert_says(Matmul(a=a, b=b, c=c, beta=1.0), "both must have the same strides")
    assert CudaSparseLt.why_not(Matmul(a=a, b=b, c=c, beta=1.0, out=array("f16", (32, 16), (1, 32)))) is None


def test_results_without_elements_are_no_affair_of_tensor_cores() -> None:
    a = structured("f16", (32, 32))
    assert CudaSparseLt.why_not(Matmul(a=a, b=array("f16", (32, 0)))) is None
    assert CudaSparseLt.why_not(Linear(x=array("f16", (3, 32)), w=structured("f16", (0, 32)))) is None


def assert_says(op: Any, wanted: str) -> None:
    why = CudaSparseLt.why_not(op)
    assert why is not None
    assert re.search(wanted, why), why
