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
    "dnn.avg_pool_backward": lambda d: {"dy": array(d, 2, 4, 3, 3), "shape": (2, 4, 6, 6), "window": 2},
    "dnn.conv": lambda d: {"x": array(d, 2, 4, 6, 6), "w": array(d, 8, 4, 3, 3)},
    "dnn.conv_backward_data": lambda d: {
        "dy": array(d, 2, 8, 4, 4),
        "w": array(d, 8, 4, 3, 3),
        "shape": (2, 4, 6, 6),
    },
    "dnn.conv_backward_filter": lambda d: {
        "x": array(d, 2, 4, 6, 6),
        "dy": array(d, 2, 8, 4, 4),
        "shape": (8, 4, 3, 3),
    },
    "dnn.conv_transpose": lambda d: {"x": array(d, 2, 8, 4, 4), "w": array(d, 8, 4, 3, 3)},
    "dnn.max_pool": lambda d: {"x": array(d, 2, 4, 6, 6), "window": 2},
    "dnn.max_pool_backward": lambda d: {
        "dy": array(d, 2, 4, 3, 3),
        "indices": array("i32", 2, 4, 3, 3),
        "shape": (2, 4, 6, 6),
        "window": 2,
    },
    "dnn.max_pool_indices": lambda d: {"x": array(d, 2, 4, 6, 6), "window": 2},
}
"""By tag; ops whose operands may have any shapes need no row."""
