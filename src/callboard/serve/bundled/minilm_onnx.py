"""MiniLM by ONNX Runtime on the CPU: the graph is written here, the weights are those of the checkpoint.

A graph is a protobuf message (`onnx.proto` of github.com/onnx/onnx), whose fields are written by :func:`_field`. The
nodes `Attention`, `BiasGelu`, `EmbedLayerNormalization` and `SkipLayerNormalization` are ONNX Runtime's own.
"""

import json
import struct
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from callboard.core.backend.machine import cores
from callboard.device.protocol.residents.actor import HostContext
from callboard.serve.bundled.minilm_ops import padded
from callboard.serve.tensors import Array

__all__ = ["fused_weights", "graph", "prepared", "session"]

OPSET, IR, OWN = 17, 8, "com.microsoft"
FLOAT, INT32 = 1, 6
EXTERNAL = 1


def prepared(folder: Path) -> Callable[[HostContext], Callable[[list[list[int]]], Array]]:
    """Open the session of a model; the result returns the function of a batch."""
    from safetensors.numpy import load_file

    opened = session(json.loads((folder / "config.json").read_text("utf-8")), load_file(folder / "model.safetensors"))

    def embed(texts: list[list[int]]) -> Array:
        given = padded(texts)
        tokens, share = given["tokens"], given["share"]
        within = (share > 0).astype(np.int32)
        fed = {"tokens": tokens, "kinds": np.zeros_like(tokens), "within": within, "share": share[:, None]}
        found: Array = opened.run(None, fed)[0][:, 0]
        return found

    return lambda ctx: embed


def session(config: Mapping[str, Any], weights: Mapping[str, Array]) -> Any:
    """An ``onnxruntime.InferenceSession``: ``tokens``, ``kinds``, ``within`` (i32[n, m]) and ``share`` (f32[n, 1, m]).

    Args:
        config: The model's ``config.json``.
        weights: Weights by their names in the checkpoint.
    """
    import onnxruntime

    arrays = fused_weights(config["num_hidden_layers"], weights)
    options = onnxruntime.SessionOptions()
    # As many as it may use: by default, ONNX Runtime binds its threads to the cores of the machine. Waiting in a loop
    # would take the cores from the server.
    options.intra_op_num_threads = cores()
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    value = onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type
    options.add_external_initializers(list(arrays), [value(array, FLOAT) for array in arrays.values()])
    return onnxruntime.InferenceSession(graph(config, arrays), options, providers=["CPUExecutionProvider"])


def fused_weights(layers: int, weights: Mapping[str, Array]) -> dict[str, Array]:
    """The weights as the nodes take them: matrices transposed, those of queries, keys and values side by side."""
    return dict(_arrays(layers, weights))


def _arrays(layers: int, weights: Mapping[str, Array]) -> Iterator[tuple[str, Array]]:
    for name, array in weights.items():
        if array.dtype == np.float32 and not name.startswith("pooler.") and ".self." not in name:
            dense = name.startswith("encoder.") and array.ndim == 2
            yield name, np.ascontiguousarray(array.T if dense else array)
    for i in range(layers):
        parts = [f"encoder.layer.{i}.attention.self.{part}" for part in ("query", "key", "value")]
        yield f"{i}.weight", np.ascontiguousarray(np.concatenate([weights[f"{part}.weight"] for part in parts]).T)
        yield f"{i}.bias", np.concatenate([weights[f"{part}.bias"] for part in parts])


def graph(config: Mapping[str, Any], arrays: Mapping[str, Array], code: int = FLOAT) -> bytes:
    """The model as an ONNX file has it, without the numbers of the arrays.

    Args:
        config: The model's ``config.json``.
        arrays: The weights, from :func:`fused_weights`.
        code: ONNX's code of their dtype.
    """
    epsilon = {"epsilon": float(config["layer_norm_eps"])}

    def norm(name: str) -> list[str]:
        return [f"{name}.LayerNorm.weight", f"{name}.LayerNorm.bias"]

    tables = [f"embeddings.{kind}_embeddings.weight" for kind in ("word", "position", "token_type")]
    given = ["tokens", "kinds", *tables, *norm("embeddings"), "within"]
    nodes = [_node("EmbedLayerNormalization", given, ["x", "lengths"], OWN, epsilon)]
    x = "x"
    for i in range(config["num_hidden_layers"]):
        layer, heads = f"encoder.layer.{i}", {"num_heads": config["num_attention_heads"]}
        attended, inner, outer = (f"{layer}.{part}.dense" for part in ("attention.output", "intermediate", "output"))
        nodes += [
            _node("Attention", [x, f"{i}.weight", f"{i}.bias", "lengths"], [f"{i}.seen"], OWN, heads),
            _node("MatMul", [f"{i}.seen", f"{attended}.weight"], [f"{i}.attended"]),
            _node(
                "SkipLayerNormalization",
                [f"{i}.attended", x, *norm(f"{layer}.attention.output"), f"{attended}.bias"],
                [f"{i}.between"],
                OWN,
                epsilon,
            ),
            _node("MatMul", [f"{i}.between", f"{inner}.weight"], [f"{i}.wide"]),
            _node("BiasGelu", [f"{i}.wide", f"{inner}.bias"], [f"{i}.inner"], OWN),
            _node("MatMul", [f"{i}.inner", f"{outer}.weight"], [f"{i}.outer"]),
            _node(
                "SkipLayerNormalization",
                [f"{i}.outer", f"{i}.between", *norm(f"{layer}.output"), f"{outer}.bias"],
                [f"{i}.x"],
                OWN,
                epsilon,
            ),
        ]
        x = f"{i}.x"
    nodes.append(_node("MatMul", ["share", x], ["mean"]))
    nodes.append(_node("LpNormalization", ["mean"], ["vectors"], "", {"axis": -1, "p": 2}))
    body = [_field(1, node) for node in nodes] + [_field(2, "MiniLM")]
    body += [_field(5, _elsewhere(name, array.shape, code)) for name, array in arrays.items()]
    body += [_field(11, _described(name, INT32, ("n", "m"))) for name in ("tokens", "kinds", "within")]
    body += [_field(11, _described("share", code, ("n", 1, "m")))]
    body += [_field(12, _described("vectors", code, ("n", 1, config["hidden_size"])))]
    opsets = [_field(2, OPSET), _field(1, OWN) + _field(2, 1)]
    return _field(1, IR) + _field(7, b"".join(body)) + b"".join(_field(8, opset) for opset in opsets)


def _node(
    kind: str, inputs: list[str], outputs: list[str], domain: str = "", attributes: Mapping[str, Any] | None = None
) -> bytes:
    """A `NodeProto`."""
    parts = [_field(1, name) for name in inputs] + [_field(2, name) for name in outputs] + [_field(4, kind)]
    for name, value in (attributes or {}).items():
        field, code = (2, 1) if isinstance(value, float) else (3, 2)
        parts.append(_field(5, _field(1, name) + _field(field, value) + _field(20, code)))
    return b"".join(parts) + _field(7, domain)


def _elsewhere(name: str, shape: tuple[int, ...], code: int) -> bytes:
    """A `TensorProto` whose numbers are given beside the graph."""
    where = _field(1, "location") + _field(2, "beside")
    numbers = _field(13, where) + _field(14, EXTERNAL)
    return b"".join(_field(1, extent) for extent in shape) + _field(2, code) + _field(8, name) + numbers


def _described(name: str, code: int, shape: tuple[int | str, ...]) -> bytes:
    """A `ValueInfoProto`: an input or output; extents with names are open."""
    extents = b"".join(_field(1, _field(1 if isinstance(extent, int) else 2, extent)) for extent in shape)
    return _field(1, name) + _field(2, _field(1, _field(1, code) + _field(2, extents)))


def _field(number: int, value: int | float | str | bytes) -> bytes:
    """A field of a protobuf message: its number and wire type, then the value."""
    if isinstance(value, float):
        return _varint(number << 3 | 5) + struct.pack("<f", value)
    if isinstance(value, int):
        return _varint(number << 3) + _varint(value & (1 << 64) - 1)
    content = value.encode() if isinstance(value, str) else value
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    """Seven bits a byte, the lowest first; the eighth says that more follow."""
    parts = []
    while value > 127:
        parts.append(value & 127 | 128)
        value >>= 7
    return bytes([*parts, value])
