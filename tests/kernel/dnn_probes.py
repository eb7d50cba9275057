"""Messages of deep learning whose operands and settings have to fit each other: fields for a dtype of the first."""

from collections.abc import Callable
from typing import Any

from callboard.core.dtype import DTYPES, DType
from callboard.core.layout import layout_of
from callboard.core.operand import Placeholder
from callboard.kernel.dnn.graphs import GraphNode, GraphOutput
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


def sums(dtype: DType, *shape: int) -> Placeholder:
    """Statistics of arrays of a dtype."""
    return array("f64" if dtype.name == "f64" else "f32", *shape)


def rows(dtype: DType, **more: Any) -> dict[str, Any]:
    return {"dy": array(dtype, 6, 8), "x": array(dtype, 6, 8), "inverse": sums(dtype, 6), **more}


def channels(dtype: DType, *statistics: int) -> dict[str, Any]:
    image = array(dtype, 2, 4, 6)
    return {"dy": image, "x": image, "mean": sums(dtype, *statistics), "inverse": sums(dtype, *statistics)}


def turned(dtype: DType, name: str) -> dict[str, Any]:
    return {name: array(dtype, 6, 8), "cos": sums(dtype, 6, 4), "sin": sums(dtype, 6, 4)}


PROBES: dict[str, Callable[[DType], dict[str, Any]]] = {
    "dnn.activation": lambda d: {"x": array(d, 6), "kind": "relu"},
    "dnn.activation_backward": lambda d: {"dy": array(d, 6), "x": array(d, 6), "kind": "relu"},
    "dnn.batch_norm": lambda d: {"x": array(d, 2, 4, 6), "mean": sums(d, 4), "variance": sums(d, 4)},
    "dnn.batch_norm_backward": lambda d: channels(d, 4),
    "dnn.cross_entropy": lambda d: {"x": array(d, 6, 8), "target": array("i64", 6)},
    "dnn.cross_entropy_backward": lambda d: {
        "dloss": array(d),
        "x": array(d, 6, 8),
        "target": array("i64", 6),
        "log_sum": sums(d, 6),
    },
    "dnn.embedding": lambda d: {"table": array(d, 6, 8), "indices": array("i64", 3)},
    "dnn.embedding_backward": lambda d: {"dy": array(d, 3, 8), "indices": array("i64", 3), "rows": 6},
    "dnn.fused": lambda d: {
        "operands": (array(d, 6, 8),),
        "nodes": (GraphNode("relu", (0,)),),
        "outputs": (GraphOutput(1, "f64" if d.name == "f64" else "f32"),),
    },
    "dnn.group_norm_backward": lambda d: channels(d, 2, 1),
    "dnn.instance_norm_backward": lambda d: channels(d, 2, 4),
    "dnn.layer_norm_backward": lambda d: rows(d, mean=sums(d, 6)),
    "dnn.mse_backward": lambda d: {"dloss": array(d), "x": array(d, 6), "target": array(d, 6)},
    "dnn.rms_norm_backward": rows,
    "dnn.rope": lambda d: turned(d, "x"),
    "dnn.rope_backward": lambda d: turned(d, "dy"),
    "dnn.top_k": lambda d: {"x": array(d, 6), "k": 2},
    "dnn.top_k_backward": lambda d: {"dvalues": array(d, 2), "indices": array("i64", 2), "extent": 6},
    "dnn.avg_pool": lambda d: {"x": array(d, 2, 4, 6, 6), "window": 2},
    "dnn.rnn_backward": trained,
    "dnn.rnn_forward": recurrent,
    "dnn.rnn_forward_training": recurrent,
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
