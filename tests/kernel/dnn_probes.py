"""Messages of deep learning whose operands and settings have to fit each other: fields for a dtype of the first."""

from collections.abc import Callable
from typing import Any

from callboard.core.dtype import DTYPES, DType
from callboard.core.layout import layout_of
from callboard.core.operand import Placeholder

__all__ = ["PROBES"]


def array(dtype: DType | str, *shape: int) -> Placeholder:
    return Placeholder(layout_of(DTYPES[dtype] if isinstance(dtype, str) else dtype, shape))


PROBES: dict[str, Callable[[DType], dict[str, Any]]] = {
    "dnn.avg_pool": lambda d: {"x": array(d, 2, 4, 6, 6), "window": 2},
}
"""By tag; ops whose operands may have any shapes need no row."""
