"""ONNX models for tests, written without the package ``onnx``."""

import struct
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from callboard.kernel.engine.onnxfile import field_bytes, info_bytes, tensor_bytes

Extents = Sequence[int | str] | None
RNG = np.random.default_rng(0)
W = RNG.standard_normal((4, 3)).astype("f4")
B = RNG.standard_normal(3).astype("f4")


def attribute(name: str, value: Any) -> bytes:
    if isinstance(value, np.ndarray):
        body, code = field_bytes(5, tensor_bytes("", value)), 4
    elif isinstance(value, bytes):
        body, code = field_bytes(6, value), 5
    elif isinstance(value, float):
        body, code = field_bytes(2, value), 1
    elif isinstance(value, int):
        body, code = field_bytes(3, value), 2
    elif isinstance(value, str):
        body, code = field_bytes(4, value), 3
    elif value and isinstance(value[0], float):
        body, code = field_bytes(7, b"".join(struct.pack("<f", one) for one in value)), 6
    elif value and isinstance(value[0], str):
        body, code = b"".join(field_bytes(9, one) for one in value), 8
    else:
        body, code = b"".join(field_bytes(8, one) for one in value), 7
    return field_bytes(1, name) + body + field_bytes(20, code)


def node(op: str, inputs: Sequence[str], outputs: Sequence[str], domain: str = "", **attributes: Any) -> bytes:
    parts = [field_bytes(1, name) for name in inputs] + [field_bytes(2, name) for name in outputs]
    parts += [field_bytes(4, op), field_bytes(7, domain)]
    return b"".join(parts + [field_bytes(5, attribute(name, value)) for name, value in attributes.items()])


def graph(
    nodes: Sequence[bytes],
    inputs: Mapping[str, tuple[str, Extents]],
    outputs: Mapping[str, tuple[str, Extents]],
    weights: Mapping[str, Any] | None = None,
) -> bytes:
    """A graph: of a model, or the attribute of a node."""
    body = [field_bytes(1, each) for each in nodes] + [field_bytes(2, "graph")]
    body += [field_bytes(5, tensor_bytes(name, np.asarray(array))) for name, array in (weights or {}).items()]
    body += [field_bytes(11, info_bytes(name, *each)) for name, each in inputs.items()]
    body += [field_bytes(12, info_bytes(name, *each)) for name, each in outputs.items()]
    return b"".join(body)


def model(
    nodes: Sequence[bytes],
    inputs: Mapping[str, tuple[str, Extents]],
    outputs: Mapping[str, tuple[str, Extents]],
    weights: Mapping[str, Any] | None = None,
    opset: int = 20,
) -> bytes:
    operators = field_bytes(8, field_bytes(1, "") + field_bytes(2, opset))
    return field_bytes(1, 9) + field_bytes(7, graph(nodes, inputs, outputs, weights)) + operators


def linear(rows: int | str = "n") -> bytes:
    """``y = relu(x @ w + b)``."""
    nodes = [node("MatMul", ["x", "w"], ["m"]), node("Add", ["m", "b"], ["a"]), node("Relu", ["a"], ["y"])]
    return model(nodes, {"x": ("f32", [rows, 4])}, {"y": ("f32", [rows, 3])}, {"w": W, "b": B})


def linear_of(x: Any, w: Any = W, b: Any = B) -> Any:
    return np.maximum(x @ w + b, 0)
