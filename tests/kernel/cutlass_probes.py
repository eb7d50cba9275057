"""Calls of products whose factors have different numbers of axes, for tests over all messages."""

from collections.abc import Callable
from typing import Any

from tests.kernel.dnn_probes import array

from callboard.core.dtype import DTYPES, DType

__all__ = ["PROBES"]


def second(dtype: DType) -> DType:
    """The tensor cores multiply f8_e5m2 with f8_e4m3 only."""
    return DTYPES["f8_e4m3"] if dtype.name == "f8_e5m2" else dtype


def conv(dtype: DType) -> dict[str, Any]:
    return {"a": array(dtype, 2, 4, 4, 16), "b": array(second(dtype), 16, 2, 2, 16)}


def grouped(dtype: DType) -> dict[str, Any]:
    factors = {"a": array(dtype, 32, 32), "b": array(second(dtype), 2, 32, 32)}
    return {**factors, "offsets": array(DTYPES["i32"], 3)}


PROBES: dict[str, Callable[[DType], dict[str, Any]]] = {"cutlass.conv": conv}
PROBES |= {"cutlass.explain_conv": conv, "cutlass.grouped_gemm": grouped}
