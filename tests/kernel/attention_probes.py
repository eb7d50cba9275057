"""Messages of attention, whose operands have to fit each other: fields for a dtype of the first."""

from collections.abc import Callable
from typing import Any

from tests.kernel.dnn_probes import array, sums

from callboard.core.dtype import DTYPES, DType
from callboard.core.operand import Placeholder

__all__ = ["PROBES"]

BATCH, ROWS, HEADS, DIM = 2, 4, 2, 8
BLOCKS, BLOCK = 4, 8


def heads(dtype: DType) -> Placeholder:
    return array(dtype, BATCH, ROWS, HEADS, DIM)


def log_sums(dtype: DType) -> Placeholder:
    return sums(dtype, BATCH, HEADS, ROWS)


def result(dtype: DType) -> dict[str, Any]:
    return {"dout": heads(dtype), "out": heads(dtype), "lse": log_sums(dtype)}


def gradient(dtype: DType) -> dict[str, Any]:
    return {**result(dtype), "q": heads(dtype), "k": heads(dtype), "v": heads(dtype)}


def narrow(dtype: DType) -> dict[str, Any]:
    x = array(dtype, BATCH, ROWS, HEADS, 128)
    return {"q": x, "k": x, "v": x, "dout": x, "out": x, "lse": log_sums(DTYPES["f32"])}


def pages(dtype: DType) -> dict[str, Any]:
    page = array(dtype, BLOCKS, BLOCK, HEADS, DIM)
    return {"k_pages": page, "v_pages": page}


PROBES: dict[str, Callable[[DType], dict[str, Any]]] = {
    "attention.backward": gradient,
    "attention.backward_bias": lambda d: {**gradient(d), "bias": array(d, BATCH, HEADS, ROWS, ROWS)},
    "attention.backward_sink": lambda d: {**result(d), "sink": sums(d, HEADS)},
    "attention.backward_fp8": narrow,
    "attention.merge": lambda d: {"outs": (heads(d), heads(d)), "lses": (log_sums(d), log_sums(d))},
    "attention.page_append": lambda d: {
        "k": array(d, 1, HEADS, DIM),
        "v": array(d, 1, HEADS, DIM),
        **pages(d),
        "slots": array("i64", 1),
    },
    "attention.page_copy": lambda d: {**pages(d), "sources": array("i32", 1), "targets": array("i32", 1)},
    "attention.paged_forward": lambda d: {
        "q": array(d, BATCH, 1, HEADS, DIM),
        **pages(d),
        "block_tables": array("i32", BATCH, 2),
        "seqlens_k": array("i32", BATCH),
    },
}
"""By tag."""
