"""ONNX models for tests, written without the package ``onnx``."""

import struct
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from callboard.core.dtype import as_dtype
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


def encoder(layers: int, dtype: str = "f32", width: int = 32, heads: int = 4, seed: int = 3) -> bytes:
    """Layers of a transformer in plain operators, as exporters write them.

    ``x`` ([n, m, width]) and ``mask`` ([n, 1, 1, m], added to the scores) to ``y`` ([n, m, width]).
    """
    rng, kind = np.random.default_rng(seed), as_dtype(dtype).np
    weights: dict[str, Any] = {"split": np.array([0, 0, heads, width // heads]), "joined": np.array([0, 0, width])}
    weights["scale"] = np.array((width // heads) ** -0.5, kind)
    nodes: list[bytes] = []

    def made(op: str, inputs: list[str], output: str, **attributes: Any) -> str:
        nodes.append(node(op, inputs, [output], **attributes))
        return output

    def dense(x: str, name: str, size: int, wide: int) -> str:
        weights[f"{name}.w"] = (rng.standard_normal((size, wide)) * size**-0.5).astype(kind)
        weights[f"{name}.b"] = (0.1 * rng.standard_normal(wide)).astype(kind)
        return made("Add", [made("MatMul", [x, f"{name}.w"], f"{name}:m"), f"{name}.b"], f"{name}:a")

    def norm(x: str, name: str) -> str:
        weights[f"{name}.s"] = (1 + 0.1 * rng.standard_normal(width)).astype(kind)
        weights[f"{name}.z"] = (0.1 * rng.standard_normal(width)).astype(kind)
        return made("LayerNormalization", [x, f"{name}.s", f"{name}.z"], f"{name}:n", axis=-1)

    x = "x"
    for i in range(layers):
        parts = []
        for part, order in (("q", [0, 2, 1, 3]), ("k", [0, 2, 3, 1]), ("v", [0, 2, 1, 3])):
            split = made("Reshape", [dense(x, f"{i}.{part}", width, width), "split"], f"{i}.{part}:r")
            parts.append(made("Transpose", [split], f"{i}.{part}:t", perm=order))
        scores = made("Mul", [made("MatMul", parts[:2], f"{i}:s"), "scale"], f"{i}:d")
        shares = made("Softmax", [made("Add", [scores, "mask"], f"{i}:h")], f"{i}:p", axis=-1)
        mixed = made("Transpose", [made("MatMul", [shares, parts[2]], f"{i}:o")], f"{i}:q", perm=[0, 2, 1, 3])
        out = dense(made("Reshape", [mixed, "joined"], f"{i}:j"), f"{i}.out", width, width)
        x = norm(made("Add", [out, x], f"{i}:x"), f"{i}.first")
        inner = made("Gelu", [dense(x, f"{i}.wide", width, 4 * width)], f"{i}:g")
        x = norm(made("Add", [dense(inner, f"{i}.narrow", 4 * width, width), x], f"{i}:y"), f"{i}.second")
    made("Identity", [x], "y")
    shape = ["n", "m", width]
    return model(nodes, {"x": (dtype, shape), "mask": (dtype, ["n", 1, 1, "m"])}, {"y": (dtype, shape)}, weights)
