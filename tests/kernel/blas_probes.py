"""Messages of packed and banded matrices, whose operands have to fit each other: fields for a dtype of the first."""

from collections.abc import Callable
from typing import Any

from tests.kernel.dnn_probes import array

from callboard.core.dtype import DType
from callboard.core.layout import layout_of
from callboard.core.operand import Placeholder

__all__ = ["PROBES"]

N, DIAGONALS = 4, 2


def packed(dtype: DType) -> dict[str, Any]:
    return {"a": array(dtype, N * (N + 1) // 2), "x": array(dtype, N)}


def banded(dtype: DType) -> dict[str, Any]:
    return {"a": Placeholder(layout_of(dtype, (DIAGONALS, N), (1, DIAGONALS))), "x": array(dtype, N)}


PROBES: dict[str, Callable[[DType], dict[str, Any]]] = {
    **{f"blas.{name}": packed for name in ("hpmv", "spmv", "tpmv", "tpsv")},
    **{f"blas.{name}": banded for name in ("gbmv", "hbmv", "sbmv", "tbmv", "tbsv")},
}
"""By tag."""
