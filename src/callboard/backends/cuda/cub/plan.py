"""Queries of plans on their messages."""

from typing import Any

import numpy as np

from callboard.core.dtype import DType
from callboard.core.layout import Layout, layout_of

__all__ = ["identity", "index_name", "number", "result_layout", "storage"]


def storage(layout: Layout) -> "np.dtype[Any]":
    """The dtype by which elements are handed to ``cuda.compute``: bool as the byte that it is."""
    return np.dtype(np.uint8) if layout.dtype.kind == "bool" else layout.dtype.np


def result_layout(op: Any, name: str = "out") -> Layout:
    """The layout of a result: that of the given array, else of a new one."""
    given = getattr(op, name)
    layout: Layout = op.infer()[name] if given is None else given.layout
    return layout if given is not None else layout_of(layout.dtype, layout.shape)


def number(value: Any, work: DType) -> "np.ndarray[Any, Any]":
    """A number as an array of one; integers wrap around."""
    return np.array([value]).astype(work.np)


def identity(operation: str, work: DType) -> Any:
    """The identity element of an operation."""
    if operation in ("sum", "product"):
        return int(operation == "product")
    least = operation == "max"
    if work.is_float:
        return -np.inf if least else np.inf
    limits = np.iinfo(work.np)
    return int(limits.min if least else limits.max)


def index_name(count: int) -> str:
    """The narrowest dtype of indices below ``count``."""
    return "i32" if count < 2**31 else "i64"
