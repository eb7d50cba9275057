"""The dtype under which the execution of a message is counted."""

from typing import Any

import pytest

from callboard.core.dtype import DTYPES
from callboard.core.layout import layout_of
from callboard.core.operand import Placeholder
from callboard.kernel.blas import Gemm
from callboard.kernel.memory import Empty
from callboard.kernel.sparse import CsrRef, SpMv
from callboard.kernel.sparse_lt import Matmul
from callboard.kernel.sparse_lt.structured import StructuredRef, compressed_bytes
from callboard.kernel.tensor import Einsum
from gpu_check.pytest_report import first_dtype


def array(dtype: str, *shape: int) -> Placeholder:
    return Placeholder(layout_of(DTYPES[dtype], shape))


def csr(dtype: str) -> Any:
    return CsrRef(array(dtype, 3), array("i32", 3), array("i32", 5), shape=(4, 4))


def structured() -> Any:
    room = compressed_bytes(DTYPES["bf16"], (32, 32))
    return StructuredRef(array("u8", room), "bf16", (32, 32))


@pytest.mark.parametrize(
    "message, dtype",
    [
        (Gemm(a=array("f32", 2, 2), b=array("f32", 2, 2)), "f32"),
        (Einsum(equation="ij->ji", operands=(array("c64", 2, 2),)), "c64"),
        (SpMv(a=csr("f64"), x=array("f64", 4)), "f64"),
        (Matmul(a=structured(), b=array("bf16", 32, 32)), "bf16"),
        (Empty(shape=(3,), dtype="i8"), None),
    ],
)
def test_a_message_tells_the_dtype_that_it_is_counted_by(message: Any, dtype: str | None) -> None:
    assert first_dtype(message) == dtype
