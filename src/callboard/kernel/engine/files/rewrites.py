"""Rewrites of ONNX Runtime that would change what a model computes, and are switched off for it."""

from collections.abc import Iterator

import numpy as np

from callboard.kernel.engine.onnxfile import Graph, Node, OnnxError, model_of

__all__ = ["switched_off"]

DROPS_RELU = "ReluQuantRewrite"
"""It leaves a Relu before a QuantizeLinear out, as if every lowest number were 0. Seen in ONNX Runtime 1.32: negative
numbers then come through where that node gives numbers of 8 bits with an exponent, or of 4 bits."""
RIGHT = ("uint8", "int8", "uint16", "int16")
"""NumPy's names of the dtypes of zero points for which it looks whether 0 is the lowest number."""


def switched_off(data: bytes) -> list[str]:
    """What an ``InferenceSession`` of this file needs as ``disabled_optimizers``.

    Args:
        data: The ONNX file, with the weights that it has inside.

    Returns:
        Names; those of a file that cannot be read here, or has functions, as for the worst of nodes.
    """
    if b"QuantizeLinear" not in data:
        return []
    try:
        model = model_of(data)
    except OnnxError:
        return [DROPS_RELU]
    points: set[str] = set()
    dtypes: dict[str, set[str]] = {}
    for graph in _graphs(model.graph):
        for name, array in graph.initializers.items():
            dtypes.setdefault(name, set()).add(array.dtype.name)
        for node in graph.nodes:
            if node.op == "QuantizeLinear" and len(node.inputs) > 2 and node.inputs[2]:
                points.add(node.inputs[2])
            for name in node.outputs:
                dtypes.setdefault(name, set()).add(_dtype(node))
    wrong = model.functions or any(not dtypes.get(name, {""}).issubset(RIGHT) for name in points)
    return [DROPS_RELU] if wrong else []


def _graphs(graph: Graph) -> Iterator[Graph]:
    """A graph, and those in its nodes."""
    yield graph
    for node in graph.nodes:
        for each in node.attributes.values():
            if isinstance(each, Graph):
                yield from _graphs(each)


def _dtype(node: Node) -> str:
    """Of the value of a constant; ``""`` where that cannot be told."""
    value = node.attributes.get("value") if node.title == "Constant" else None
    return value.dtype.name if isinstance(value, np.ndarray) else ""
