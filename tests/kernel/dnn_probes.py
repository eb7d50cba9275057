"""Messages of deep learning whose operands and settings have to fit each other: fields for a dtype of the first."""

from collections.abc import Callable
from typing import Any

from callboard.core.dtype import DTYPES, DType
from callboard.core.layout import layout_of
from callboard.core.operand import Placeholder
from callboard.kernel.dnn.rnn import RnnParams
from callboard.kernel.dnn.rnn.reserve import reserve_bytes

__all__ = ["PROBES"]


def array(dtype: DType | str, *shape: int) -> Placeholder:
    return Placeholder(layout_of(DTYPES[dtype] if isinstance(dtype, str) else dtype, shape))


def recurrent(dtype: DType) -> dict[str, Any]:
    params = RnnParams("lstm", 8, 16)
    return {"x": array(dtype, 5, 2, 8), "weights": array(dtype, params.weight_size), "params": params}


def trained(dtype: DType) -> dict[str, Any]:
    given = recurrent(dtype)
    y, nbytes = array(dtype, 5, 2, 16), reserve_bytes(given["params"], dtype, 10, dropout=False)
    return {**given, "y": y, "dy": y, "reserve": array("u8", nbytes)}


PROBES: dict[str, Callable[[DType], dict[str, Any]]] = {
    "dnn.avg_pool": lambda d: {"x": array(d, 2, 4, 6, 6), "window": 2},
    "dnn.rnn_backward": trained,
    "dnn.rnn_forward": recurrent,
    "dnn.rnn_forward_training": recurrent,
}
"""By tag; ops whose operands may have any shapes need no row."""
