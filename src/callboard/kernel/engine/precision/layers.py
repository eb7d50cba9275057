"""The layers of a model, and how each is rewritten to compute in another dtype."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from callboard.kernel.engine.onnxfile import CODES, Graph, Model
from callboard.kernel.engine.precision.editing import Change, Edit, node_bytes

__all__ = ["Layer", "layers_of", "lowered_edit"]

Array = np.ndarray[Any, Any]
KINDS = ("MatMul", "Gemm", "Conv", "ConvTranspose")
LARGEST_F8 = 448.0


@dataclass(frozen=True)
class Layer:
    """A node whose second input is a weight in f32.

    Attributes:
        at: Its number in the graph.
        name: Of the node; its output, if the node has no name.
        op: The operator.
        source: Name of its input.
        bias: Name of the input that is added (the third), or None.
        output: Name of its output.
        weight: Its weight.
        axis: The axis of the weight's output channels; None: one scale for all.
    """

    at: int
    name: str
    op: str
    source: str
    bias: str | None
    output: str
    weight: Array
    axis: int | None


def layers_of(model: Model) -> list[Layer]:
    """The layers of a graph, in order."""
    graph, found = model.graph, []
    weights = _weights(graph)
    for at, node in enumerate(graph.nodes):
        if node.domain not in ("", "ai.onnx") or node.op not in KINDS:
            continue
        weight = weights.get(node.inputs[1])
        if weight is None or weight.dtype != np.float32 or weight.ndim < 2:
            continue
        axis: int | None = weight.ndim - 1
        if node.op == "Gemm":
            axis = 0 if node.attributes.get("transB") else 1
        elif node.op == "Conv":
            axis = 0
        elif node.op == "ConvTranspose":
            axis = 1 if node.attributes.get("group", 1) == 1 else None
        source, output = node.inputs[0], node.outputs[0]
        bias = (node.inputs[2] or None) if len(node.inputs) > 2 else None
        found.append(Layer(at, node.name or output, node.op, source, bias, output, weight, axis))
    return found


def _weights(graph: Graph) -> Mapping[str, Array]:
    """Initializers, and values of constants."""
    found = dict(graph.initializers)
    for node in graph.nodes:
        value = node.attributes.get("value")
        if node.op == "Constant" and isinstance(value, np.ndarray):
            found[node.outputs[0]] = value
    return found


def lowered_edit(
    layers: list[Layer], precision: str, ranges: Mapping[str, tuple[float, float]], symmetric: bool = False
) -> Edit:
    """The edit that lowers these layers.

    Args:
        layers: Layers of one model.
        precision: ``"f16"``, ``"bf16"``, ``"int8"`` or ``"fp8"``.
        symmetric: In int8, inputs are i8 around 0.
        ranges: Where the values of each layer's input begin and end, by the input's name; not for halves.
    """
    edit = Edit()
    for layer in layers:
        if precision in ("f16", "bf16"):
            edit.changes[layer.at] = _cast(layer, precision, edit.weights)
        else:
            edit.changes[layer.at] = _quantised(layer, precision, ranges[layer.source], edit.weights, symmetric)
    return edit


def _cast(layer: Layer, dtype: str, weights: dict[str, Array]) -> Change:
    """In halves, between casts."""
    name, code = f"{layer.output}:{dtype}", CODES[dtype]
    half: Any = np.float16 if dtype == "f16" else ml_dtypes.bfloat16
    limit = float(ml_dtypes.finfo(half).max)  # type: ignore[no-untyped-call]
    weights[f"{name}:w"] = np.clip(layer.weight, -limit, limit).astype(half)
    change = Change(inputs={0: f"{name}:x", 1: f"{name}:w"}, outputs={0: f"{name}:y"})
    change.before.append(node_bytes("Cast", [layer.source], f"{name}:x", to=code))
    if layer.bias is not None:
        change.inputs[2] = f"{name}:b"
        change.before.append(node_bytes("Cast", [layer.bias], f"{name}:b", to=code))
    change.after.append(node_bytes("Cast", [f"{name}:y"], layer.output, to=CODES["f32"]))
    return change


def _quantised(
    layer: Layer, precision: str, limits: tuple[float, float], weights: dict[str, Array], symmetric: bool
) -> Change:
    """In eight bits: input and weight are quantised, and dequantised in front of the node."""
    name, f8 = f"{layer.output}:{precision}", ml_dtypes.float8_e4m3fn
    low, high = limits
    if precision == "int8":
        step = max(-low, high) / 127.0 if symmetric else (high - low) / 255.0
        step = step or 1.0
        zero: Array = np.zeros((), np.int8) if symmetric else np.array(np.clip(np.rint(-low / step), 0, 255), np.uint8)
        others = tuple(each for each in range(layer.weight.ndim) if each != layer.axis)
        scale = np.abs(layer.weight).max(axis=others, keepdims=True) / 127.0
        scale = np.where(scale > 0, scale, 1.0).astype(np.float32)
        stored: Array = np.rint(layer.weight / scale).astype(np.int8)
        w_zero: Array = np.zeros(scale.size, np.int8)
    else:
        step = max(-low, high) / LARGEST_F8 or 1.0
        zero, w_zero = np.zeros((), f8), np.zeros(1, f8)
        scale = np.array(float(np.abs(layer.weight).max()) / LARGEST_F8 or 1.0, np.float32)
        stored = (layer.weight / scale).astype(f8)
    per_channel = precision == "int8" and layer.axis is not None
    shape = (-1,) if per_channel else ()
    weights |= {
        f"{name}:sx": np.array(step, np.float32),
        f"{name}:zx": zero,
        f"{name}:q": stored,
        f"{name}:sw": scale.reshape(shape),
        f"{name}:zw": w_zero.reshape(shape),
    }
    attributes = {"axis": layer.axis} if per_channel and layer.axis is not None else {}
    return Change(
        before=[
            node_bytes("QuantizeLinear", [layer.source, f"{name}:sx", f"{name}:zx"], f"{name}:x8"),
            node_bytes("DequantizeLinear", [f"{name}:x8", f"{name}:sx", f"{name}:zx"], f"{name}:x"),
            node_bytes("DequantizeLinear", [f"{name}:q", f"{name}:sw", f"{name}:zw"], f"{name}:w", **attributes),
        ],
        inputs={0: f"{name}:x", 1: f"{name}:w"},
    )
