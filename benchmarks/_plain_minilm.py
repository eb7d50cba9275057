"""MiniLM as an ONNX file of plain operators, with the weights of a checkpoint: what an exporter writes."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from callboard.core.dtype import as_dtype
from callboard.kernel.engine.onnxfile import ELEMENTS, field_bytes, info_bytes, tensor_bytes

__all__ = ["plain_minilm"]

Array = np.ndarray[Any, Any]
LOWEST = {"f32": 1e9, "f16": 6e4, "bf16": 1e9}
"""What is taken from the scores of padding."""


def plain_minilm(folder: Path, dtype: str = "f32") -> bytes:
    """The model: ``ids`` and ``mask`` (i64[n, m]) to ``y`` (f32[n, width]), means of the tokens by Euclidean norms.

    Args:
        folder: With ``config.json`` and ``model.safetensors``.
        dtype: The dtype of the weights, in which the layers are computed: f32, f16 or bf16.
    """
    from safetensors.numpy import load_file

    config = json.loads((folder / "config.json").read_text("utf-8"))
    kind = as_dtype(dtype).np
    found = {name: x.astype(kind, copy=False) for name, x in load_file(folder / "model.safetensors").items()}
    return _graph(config, found, dtype)


def _graph(config: dict[str, Any], loaded: dict[str, Array], dtype: str) -> bytes:
    width, heads = config["hidden_size"], config["num_attention_heads"]
    kind, code = as_dtype(dtype).np, next(code for code, name in ELEMENTS.items() if name == dtype)
    weights: dict[str, Array] = {}
    nodes: list[bytes] = []

    def ints(*values: int) -> str:
        name = f"ints:{values}"
        weights[name] = np.array(values, np.int64)
        return name

    def number(value: float) -> str:
        name = f"number:{value}"
        weights[name] = np.array(value, kind)
        return name

    def node(op: str, inputs: list[str], output: str, **attributes: Any) -> str:
        parts = [field_bytes(1, name) for name in inputs] + [field_bytes(2, output), field_bytes(4, op)]
        parts += [field_bytes(5, _attribute(name, value)) for name, value in attributes.items()]
        nodes.append(field_bytes(1, b"".join(parts)))
        return output

    def dense(x: str, name: str) -> str:
        weights[f"{name}.weight"] = np.ascontiguousarray(loaded[f"{name}.weight"].T)
        weights[f"{name}.bias"] = loaded[f"{name}.bias"]
        return node("Add", [node("MatMul", [x, f"{name}.weight"], f"{name}:m"), f"{name}.bias"], f"{name}:a")

    def norm(x: str, name: str) -> str:
        weights[f"{name}.weight"], weights[f"{name}.bias"] = loaded[f"{name}.weight"], loaded[f"{name}.bias"]
        scale = [x, f"{name}.weight", f"{name}.bias"]
        return node("LayerNormalization", scale, f"{name}:n", axis=-1, epsilon=float(config["layer_norm_eps"]))

    base = "embeddings"
    for name in ("word", "position", "token_type"):
        weights[name] = loaded[f"{base}.{name}_embeddings.weight"]
    weights["token_type"] = weights["token_type"][:1]
    node("Gather", ["word", "ids"], "words")
    length = node("Gather", [node("Shape", ["ids"], "shape"), ints(1)], "length")
    places = node("Slice", ["position", ints(0), length, ints(0)], "places")
    x = norm(node("Add", [node("Add", ["words", places], "e0"), "token_type"], "e1"), f"{base}.LayerNorm")
    seen = node("Unsqueeze", [node("Cast", ["mask"], "seen", to=code), ints(1, 2)], "seen4")
    hidden = node("Mul", [node("Sub", [seen, number(1.0)], "unseen"), number(LOWEST[dtype])], "low")
    for i in range(config["num_hidden_layers"]):
        layer = f"encoder.layer.{i}"
        parts = []
        for part, order in (("query", [0, 2, 1, 3]), ("key", [0, 2, 3, 1]), ("value", [0, 2, 1, 3])):
            flat = dense(x, f"{layer}.attention.self.{part}")
            split = node("Reshape", [flat, ints(0, 0, heads, width // heads)], f"{flat}:r")
            parts.append(node("Transpose", [split], f"{flat}:t", perm=order))
        scores = node("MatMul", parts[:2], f"{layer}:s")
        scaled = node("Mul", [scores, number((width // heads) ** -0.5)], f"{layer}:d")
        shares = node("Softmax", [node("Add", [scaled, hidden], f"{layer}:h")], f"{layer}:p", axis=-1)
        mixed = node("Transpose", [node("MatMul", [shares, parts[2]], f"{layer}:o")], f"{layer}:q", perm=[0, 2, 1, 3])
        joined = node("Reshape", [mixed, ints(0, 0, width)], f"{layer}:j")
        out = dense(joined, f"{layer}.attention.output.dense")
        x = norm(node("Add", [out, x], f"{layer}:x"), f"{layer}.attention.output.LayerNorm")
        inner = node("Gelu", [dense(x, f"{layer}.intermediate.dense")], f"{layer}:g")
        out = dense(inner, f"{layer}.output.dense")
        x = norm(node("Add", [out, x], f"{layer}:y"), f"{layer}.output.LayerNorm")
    if dtype != "f32":  # as the sums are
        x = node("Cast", [x], "wide", to=1)
    share = node("Unsqueeze", [node("Cast", ["mask"], "kept:m", to=1), ints(2)], "share")
    total = node("ReduceSum", [node("Mul", [x, share], "kept"), ints(1)], "total", keepdims=0)
    node("LpNormalization", [total], "y", axis=-1, p=2)
    body = nodes + [field_bytes(2, "minilm")] + [field_bytes(5, tensor_bytes(*each)) for each in weights.items()]
    body += [field_bytes(11, info_bytes(name, "i64", ["n", "m"])) for name in ("ids", "mask")]
    body.append(field_bytes(12, info_bytes("y", "f32", ["n", width])))
    return field_bytes(1, 9) + field_bytes(7, b"".join(body)) + field_bytes(8, field_bytes(2, 20))


def _attribute(name: str, value: Any) -> bytes:
    if isinstance(value, float):
        return field_bytes(1, name) + field_bytes(2, value) + field_bytes(20, 1)
    if isinstance(value, int):
        return field_bytes(1, name) + field_bytes(3, value) + field_bytes(20, 2)
    numbers = b"".join(field_bytes(8, one) for one in value)
    return field_bytes(1, name) + numbers + field_bytes(20, 7)
