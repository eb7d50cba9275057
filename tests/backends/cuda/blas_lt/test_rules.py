"""Ops unsupported by cuBLASLt are rejected from the message alone, with the value and a cure."""

from typing import Any

import pytest

from callboard.backends.cuda.blas_lt import CudaBlasLt
from callboard.core.dtype import DTYPES
from callboard.core.layout import layout_of
from callboard.core.operand import Placeholder
from callboard.kernel.blas_lt import Matmul, MatmulAux, MatmulBgrad


def array(*shape: int, dtype: str = "f8_e4m3", strides: tuple[int, ...] | None = None) -> Placeholder:
    return Placeholder(layout_of(DTYPES[dtype], shape, strides))


A = array(32, 64)
B = array(64, 48, strides=(1, 64))
"""Columns adjacent."""
F32 = array(dtype="f32")
BYTES, BYTES_B = array(8, 12, dtype="i8"), array(12, 16, dtype="i8", strides=(1, 12))
BLOCKS = {"scale_a": array(256, 5, dtype="f32", strides=(1, 256)), "scale_b": array(5, 3, dtype="f32", strides=(1, 8))}
"""Of 256 x 640 by 1 x 128, and of 640 x 384 by 128 x 128, in steps of 8."""
WIDE_A, WIDE_B = array(256, 640), array(640, 384, strides=(1, 640))

TAKEN: list[Any] = [
    Matmul(a=A, b=B),
    Matmul(a=A, b=array(48, 64), transpose_b=True),
    Matmul(a=array(64, 32, strides=(1, 64)), b=B, transpose_a=True),
    Matmul(a=A, b=array(64, 40, strides=(1, 64))),
    Matmul(a=array(17, 64), b=B, out_dtype="f8_e4m3", amax=F32),
    Matmul(a=array(32, 64, dtype="f8_e5m2"), b=B, out_dtype="f8_e5m2"),
    Matmul(a=array(0, 64), b=array(64, 48)),
    Matmul(a=A, b=B, scale_a=array(32, dtype="f32"), scale_b=array(48, dtype="f32"), epilogue="gelu"),
    Matmul(a=WIDE_A, b=WIDE_B, **BLOCKS),
    MatmulAux(a=A, b=B, epilogue="relu_aux"),
    MatmulBgrad(a=A, b=B, epilogue="bgrad_b"),
    Matmul(a=array(3, 5, dtype="bf16"), b=array(5, 7, dtype="bf16")),
    Matmul(a=array(3, 5, dtype="i8"), b=array(5, 7, dtype="i8")),
    Matmul(a=BYTES, b=BYTES_B, out_dtype="i8"),
]

REFUSED: list[tuple[Any, str]] = [
    (Matmul(a=A, b=array(64, 48)), "b is f8_e4m3[64, 48]; f8_e4m3 factors need their inner axis adjacent: keep it"),
    (Matmul(a=array(32, 64, strides=(1, 32)), b=B), "need their inner axis adjacent: pass dev.copy(a) row-major"),
    (Matmul(a=array(32, 60), b=array(60, 48, strides=(1, 60))), "the rows of a are 60 elements apart"),
    (
        Matmul(a=A, b=array(64, 36, strides=(1, 64))),
        "the rows of out are 36 elements apart; with f8_e4m3",
    ),
    (Matmul(a=A, b=array(64, 40, strides=(1, 64)), out_dtype="f8_e4m3"), "the rows of out are 40 elements apart"),
    (
        Matmul(a=array(32, 60, strides=(64, 1)), b=array(60, 48, strides=(1, 64))),
        "the inner extent is 60, no multiple of 16; pad a and b with zeros",
    ),
    (Matmul(a=array(32, 0), b=array(0, 48)), "the inner extent is 0; fill out yourself"),
    (
        Matmul(a=array(32, 64, dtype="f8_e5m2"), b=array(64, 48, dtype="f8_e5m2", strides=(1, 64))),
        "a and b are f8_e5m2; the tensor cores multiply f8_e5m2 with f8_e4m3 only",
    ),
    (Matmul(a=A, b=B, out_dtype="f8_e5m2"), "a and b are f8_e4m3 and out is f8_e5m2; take out_dtype"),
    (
        Matmul(a=A, b=B, aux=array(32, 48, dtype="bf16"), epilogue="dgelu", out_dtype="f8_e4m3"),
        "epilogue is 'dgelu' and out is f8_e4m3; take out_dtype='bf16'",
    ),
    (
        MatmulBgrad(a=A, b=B, aux=array(32, 48, dtype="f32"), epilogue="dgelu_bgrad", out_dtype="f32"),
        "epilogue is 'dgelu_bgrad', a is f8_e4m3 and out is f32; take out_dtype='bf16'",
    ),
    (
        Matmul(a=WIDE_A, b=WIDE_B, **BLOCKS, fast_accum=True),
        "fast_accum is True and scales are by blocks",
    ),
    (Matmul(a=WIDE_A, b=WIDE_B, **BLOCKS, out_dtype="f8_e4m3"), "out is f8_e4m3; take out_dtype='bf16' or scale by"),
    (
        Matmul(a=WIDE_A, b=WIDE_B, **(BLOCKS | {"scale_a": array(256, 5, dtype="f32")})),
        "scale_a is f32[256, 5]; its rows must be adjacent in memory: pass dev.copy(scale_a.T).T",
    ),
    (
        Matmul(a=WIDE_A, b=WIDE_B, **(BLOCKS | {"scale_b": array(5, 3, dtype="f32", strides=(1, 5))})),
        "scale_b is f32[5, 3], strides (1, 5); its rows must be 8 apart in memory",
    ),
    (
        Matmul(a=array(255, 640), b=WIDE_B, **(BLOCKS | {"scale_a": array(255, 5, dtype="f32", strides=(1, 255))})),
        "the rows of a are 255 and scales are by blocks; pad them with zeros to a multiple of 4",
    ),
    (
        Matmul(
            a=WIDE_A,
            b=array(640, 382, strides=(1, 640)),
            out=array(256, 382, dtype="bf16", strides=(384, 1)),
            **BLOCKS,
        ),
        "the columns of b are 382 and scales are by blocks",
    ),
    (
        Matmul(a=WIDE_A, b=WIDE_B, scale_a=array(2, 5, dtype="f32"), scale_b=array(5, 3, dtype="f32")),
        "both scales are by 128x128; scale one of the factors by 128 elements",
    ),
    (
        MatmulAux(a=A, b=B, scale_a=array(32, dtype="f32"), scale_b=array(48, dtype="f32")),
        "epilogue is 'gelu_aux' and scales are by outer; take one of none, relu",
    ),
    (
        Matmul(a=array(8, 12, dtype="i8"), b=array(12, 16, dtype="i8"), out_dtype="i8"),
        "i8 factors need their inner axis",
    ),
    (
        Matmul(a=array(8, 10, dtype="i8"), b=array(10, 16, dtype="i8", strides=(1, 10)), out_dtype="i8"),
        "the rows of a are 10 elements apart; with i8 they must be multiples of 4",
    ),
]


@pytest.mark.parametrize("op", TAKEN)
def test_taken(op: Any) -> None:
    assert CudaBlasLt.why_not(op) is None


@pytest.mark.parametrize("op, says", REFUSED)
def test_refused_with_value_and_cure(op: Any, says: str) -> None:
    assert says in (CudaBlasLt.why_not(op) or "")
