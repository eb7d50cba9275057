"""The layers of a model, and how each is rewritten to compute in another dtype."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from callboard.kernel.engine.onnxfile import CODES, Graph, Model
from callboard.kernel.engine.precision.editing import Change, Edit, node_bytes

__all__ = ["Layer", "Scaled", "factors_of", "layers_of", "lowered_edit"]

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
        inner: The axis of the weight that the input's last axis is multiplied with; None: it is no such product.
    """

    at: int
    name: str
    op: str
    source: str
    bias: str | None
    output: str
    weight: Array
    axis: int | None
    inner: int | None


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
        inner: int | None = 0 if node.op == "MatMul" and weight.ndim == 2 else None
        if node.op == "Gemm":
            axis = 0 if node.attributes.get("transB") else 1
            inner = None if node.attributes.get("transA") else 1 - axis
        elif node.op == "Conv":
            axis = 0
        elif node.op == "ConvTranspose":
            axis = 1 if node.attributes.get("group", 1) == 1 else None
        source, output = node.inputs[0], node.outputs[0]
        bias = (node.inputs[2] or None) if len(node.inputs) > 2 else None
        found.append(Layer(at, node.name or output, node.op, source, bias, output, weight, axis, inner))
    return found


def _weights(graph: Graph) -> Mapping[str, Array]:
    """Initializers, and values of constants."""
    found = dict(graph.initializers)
    for node in graph.nodes:
        value = node.attributes.get("value")
        if node.op == "Constant" and isinstance(value, np.ndarray):
            found[node.outputs[0]] = value
    return found


@dataclass(frozen=True)
class Scaled:
    """What is known of an input of layers.

    Attributes:
        limits: Where its values begin and end, after the division.
        factors: What its channels are divided by, and the rows of weights multiplied with; None: nothing.
    """

    limits: tuple[float, float]
    factors: Array | None = None


def factors_of(layers: list[Layer], largest: Array | None, smooth: float) -> Array | None:
    """What the channels of an input of these layers are divided by, so that none needs a range far above the others'.

    ``max|x|**smooth / max|w|**(1 - smooth)`` of each channel (Xiao et al., "SmoothQuant", 2023).

    Args:
        layers: All layers with this input.
        largest: The largest size of each channel of the input; None: it is not known.
        smooth: Between 0, which leaves the input as it is, and 1, which gives all channels one range.
    """
    if not smooth or largest is None or any(each.inner is None for each in layers):
        return None
    rows = np.max([np.abs(each.weight).max(axis=1 - (each.inner or 0)) for each in layers], axis=0)
    found = np.maximum(largest, 1e-5) ** smooth / np.maximum(rows, 1e-5) ** (1.0 - smooth)
    factors: Array = np.clip(found, 1e-4, 1e4).astype(np.float32)
    return factors


def lowered_edit(layers: list[Layer], precision: str, inputs: Mapping[str, Scaled], symmetric: bool = False) -> Edit:
    """The edit that lowers these layers.

    Args:
        layers: Layers of one model.
        precision: ``"f16"``, ``"bf16"``, ``"int8"`` or ``"fp8"``.
        inputs: What is known of the layers' inputs, by name; not for halves.
        symmetric: In int8, inputs are i8 around 0.
    """
    edit, made = Edit(), set[str]()
    for layer in layers:
        if precision in ("f16", "bf16"):
            edit.changes[layer.at] = _cast(layer, precision, edit.weights)
            continue
        scaled = inputs[layer.source]
        change = _quantised(layer, precision, scaled.factors, edit.weights)
        if layer.source not in made:  # layers with one input share its eight bits
            made.add(layer.source)
            change.before[:0] = _quantised_input(layer.source, precision, scaled, symmetric, edit.weights)
        edit.changes[layer.at] = change
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


def _quantised_input(
    source: str, precision: str, scaled: Scaled, symmetric: bool, weights: dict[str, Array]
) -> list[bytes]:
    """The nodes that bring an input to eight bits, and back."""
    name, (low, high), before = f"{source}:{precision}", scaled.limits, []
    if precision == "int8":
        step = max(-low, high) / 127.0 if symmetric else (high - low) / 255.0
        step = step or 1.0
        zero: Array = np.zeros((), np.int8) if symmetric else np.array(np.clip(np.rint(-low / step), 0, 255), np.uint8)
    else:
        step = max(-low, high) / LARGEST_F8 or 1.0
        zero = np.zeros((), ml_dtypes.float8_e4m3fn)
    weights |= {f"{name}:sx": np.array(step, np.float32), f"{name}:zx": zero}
    if scaled.factors is not None:
        weights[f"{name}:f"] = 1.0 / scaled.factors
        before.append(node_bytes("Mul", [source, f"{name}:f"], f"{name}:xf"))
        source = f"{name}:xf"
    return [
        *before,
        node_bytes("QuantizeLinear", [source, f"{name}:sx", f"{name}:zx"], f"{name}:x8"),
        node_bytes("DequantizeLinear", [f"{name}:x8", f"{name}:sx", f"{name}:zx"], f"{name}:x"),
    ]


def _quantised(layer: Layer, precision: str, factors: Array | None, weights: dict[str, Array]) -> Change:
    """In eight bits: the weight is stored quantised, and dequantised in front of the node."""
    name, weight = f"{layer.output}:{precision}:w", layer.weight
    if factors is not None:
        weight = weight * (factors[:, None] if layer.inner == 0 else factors)
    per_channel = precision == "int8" and layer.axis is not None
    if precision == "int8":
        others = tuple(each for each in range(weight.ndim) if each != layer.axis)
        scale = np.abs(weight).max(axis=others, keepdims=True) / 127.0
        scale = np.where(scale > 0, scale, 1.0).astype(np.float32)
        stored: Array = np.rint(weight / scale).astype(np.int8)
    else:
        scale = np.array(float(np.abs(weight).max()) / LARGEST_F8 or 1.0, np.float32)
        stored = (weight / scale).astype(ml_dtypes.float8_e4m3fn)
    shape = (-1,) if per_channel else ()
    weights |= {
        f"{name}:q": stored,
        f"{name}:s": scale.reshape(shape),
        f"{name}:z": np.zeros(scale.size, stored.dtype).reshape(shape),
    }
    attributes = {"axis": layer.axis} if per_channel and layer.axis is not None else {}
    return Change(
        before=[node_bytes("DequantizeLinear", [f"{name}:q", f"{name}:s", f"{name}:z"], name, **attributes)],
        inputs={0: f"{layer.source}:{precision}:x", 1: name},
    )
