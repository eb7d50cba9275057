"""MiniLM by callboard's own ops, layer by layer, from the application or in a resident actor.

The layers are those of BERT (Devlin et al., arXiv:1810.04805); the vector of a text is the mean over its tokens, of
length 1.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from callboard.core.dtype import DTypeLike, as_dtype
from callboard.core.ref import GpuRef
from callboard.device.client.handle import Device
from callboard.device.protocol.residents.actor import HostContext
from callboard.serve.tensors import Array

__all__ = ["WIDTH", "encoded", "padded", "prepared", "weights_on"]

WIDTH, LAYERS, HEADS, EPSILON = 384, 6, 12, 1e-12
"""The values in the model's ``config.json``."""


def prepared(folder: Path) -> Callable[[HostContext], Callable[[list[list[int]]], Array]]:
    """Read the weights; the result puts them on a device and returns the function of a batch."""
    read = _weights(folder, "f32")

    def setup(ctx: HostContext) -> Callable[[list[list[int]]], Array]:
        device: Any = ctx.device
        weights = {name: device.put(x) for name, x in read.items()}

        def embed(texts: list[list[int]]) -> Array:
            text = {name: device.put(x) for name, x in padded(texts).items()}
            out: Any = encoded(device, weights, text)
            found: Array = out.get()  # in the host, which waits for it
            return found

        return embed

    return setup


def weights_on(device: Device, folder: Path, dtype: DTypeLike = "f32") -> dict[str, GpuRef]:
    """The weights, by their names in the checkpoint.

    Args:
        device: The device.
        folder: Folder that :func:`model_folder` returned.
        dtype: The dtype in which the layers are computed: f32, f16 or bf16.
    """
    return {name: device.put(x) for name, x in _weights(folder, dtype).items()}


def _weights(folder: Path, dtype: DTypeLike) -> dict[str, Array]:
    from safetensors.numpy import load_file

    kind = as_dtype(dtype).np
    found = load_file(folder / "model.safetensors")
    return {name: x.astype(kind, copy=False) for name, x in found.items() if x.dtype == np.float32}


def padded(texts: Sequence[Sequence[int]]) -> dict[str, Array]:
    """Lists of tokens as :func:`encoded` takes them.

    Returns:
        ``tokens``, ``i32[n, m]``; ``lengths``, ``i32[n]``; ``share``, ``f32[n, m]``: the weights of a text's mean.
    """
    lengths = np.array([len(text) for text in texts], np.int32)
    within = np.arange(lengths.max()) < lengths[:, None]
    tokens = np.zeros(within.shape, np.int32)
    tokens[within] = np.concatenate([np.asarray(text, np.int32) for text in texts])
    return {"tokens": tokens, "lengths": lengths, "share": (within / lengths[:, None]).astype(np.float32)}


def encoded(device: Device, weights: Mapping[str, GpuRef], text: Mapping[str, GpuRef]) -> GpuRef:
    """Vectors of texts, ``f32[n, 384]``; calls ops only, so that it can be recorded.

    Args:
        device: The device.
        weights: Weights from :func:`weights_on`.
        text: The arrays of :func:`padded`, on the device; without ``lengths`` if all texts are of one length.
    """
    dnn, (texts, tokens) = device.dnn, text["tokens"].shape
    flat = (texts * tokens, WIDTH)

    def linear(x: GpuRef, name: str) -> GpuRef:
        weight, bias = weights[f"{name}.weight"], weights[f"{name}.bias"]
        return device.blas_lt.matmul(x, weight, transpose_b=True, bias=bias, epilogue="bias")

    def norm(x: GpuRef, name: str) -> GpuRef:
        return dnn.layer_norm(x, scale=weights[f"{name}.weight"], bias=weights[f"{name}.bias"], epsilon=EPSILON)

    word, place, kind = (weights[f"embeddings.{name}_embeddings.weight"] for name in ("word", "position", "token_type"))
    x = (dnn.embedding(word, text["tokens"]) + place[:tokens] + kind[0]).reshape(*flat)
    x = norm(x, "embeddings.LayerNorm")
    for i in range(LAYERS):
        layer = f"encoder.layer.{i}"
        parts = (linear(x, f"{layer}.attention.self.{part}") for part in ("query", "key", "value"))
        q, k, v = (part.reshape(texts, tokens, HEADS, WIDTH // HEADS) for part in parts)
        seen = device.attention.forward(q, k, v, seqlens_k=text.get("lengths")).out.reshape(*flat)
        x = norm(x + linear(seen, f"{layer}.attention.output.dense"), f"{layer}.attention.output.LayerNorm")
        inner = dnn.activation(linear(x, f"{layer}.intermediate.dense"), "gelu")
        x = norm(x + linear(inner, f"{layer}.output.dense"), f"{layer}.output.LayerNorm")
    if x.dtype.name != "f32":
        x = x.astype("f32")  # as the shares are
    mean = device.tensor.einsum("nt,ntd->nd", text["share"], x.reshape(texts, tokens, WIDTH))
    found: GpuRef = mean / device.xp.linalg.vector_norm(mean, axis=1, keepdims=True)
    return found
