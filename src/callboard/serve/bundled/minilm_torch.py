"""MiniLM in PyTorch: its own ``TransformerEncoder``, which computes what BERT's layers do."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from callboard.device.protocol.residents.actor import HostContext
from callboard.serve.tensors import Array

__all__ = ["network", "prepared"]


def prepared(folder: Path) -> Callable[[HostContext], Callable[[list[list[int]]], Array]]:
    """Import PyTorch and read the weights; the result puts them on a device and returns the function of a batch."""
    import torch
    from safetensors.torch import load_file

    config = json.loads((folder / "config.json").read_text("utf-8"))
    weights = load_file(folder / "model.safetensors")

    def setup(ctx: HostContext) -> Callable[[list[list[int]]], Array]:
        device = ctx.torch_device
        run = network(torch, config, weights, device)

        def embed(texts: list[list[int]]) -> Array:
            lengths = [len(text) for text in texts]
            tokens = np.zeros((len(texts), max(lengths)), np.int64)
            for row, text in zip(tokens, texts, strict=True):
                row[: len(text)] = text
            padding = np.arange(tokens.shape[1]) >= np.array(lengths)[:, None]
            with torch.inference_mode():
                given = torch.from_numpy(tokens).to(device)
                masked = torch.from_numpy(padding).to(device) if min(lengths) < max(lengths) else None
                found: Array = run(given, masked).cpu().numpy()
            return found

        return embed

    return setup


def network(torch: Any, config: dict[str, Any], weights: dict[str, Any], device: Any) -> Callable[[Any, Any], Any]:
    """A function from tokens ``[n, m]``, and which of them are padding or None, to vectors ``[n, width]``.

    Args:
        torch: The package.
        config: The model's ``config.json``.
        weights: Weights by their names in the checkpoint; their dtype is that of the layers.
        device: Torch's.
    """
    nn = torch.nn
    width, eps, layers = config["hidden_size"], config["layer_norm_eps"], config["num_hidden_layers"]
    with torch.device("meta"):
        layer = nn.TransformerEncoderLayer(
            width, config["num_attention_heads"], config["intermediate_size"], 0.0, "gelu", eps, batch_first=True
        )
        encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
    renamed = {name: value for i in range(layers) for name, value in _layer(torch, weights, i)}
    encoder.load_state_dict(renamed, assign=True)
    encoder = encoder.to(device).eval()
    embeddings = {
        name.removeprefix("embeddings."): value.to(device)
        for name, value in weights.items()
        if name.startswith("embeddings.")
    }
    word, place = embeddings["word_embeddings.weight"], embeddings["position_embeddings.weight"]
    kind = embeddings["token_type_embeddings.weight"][0]
    scale, shift = embeddings["LayerNorm.weight"], embeddings["LayerNorm.bias"]

    def run(tokens: Any, padding: Any) -> Any:
        x = nn.functional.embedding(tokens, word) + place[: tokens.shape[1]] + kind
        x = encoder(nn.functional.layer_norm(x, (width,), scale, shift, eps), src_key_padding_mask=padding)
        if padding is None:
            return nn.functional.normalize(x.mean(1))
        kept = (~padding).unsqueeze(-1).to(x.dtype)
        return nn.functional.normalize((x * kept).sum(1) / kept.sum(1))

    return run


def _layer(torch: Any, weights: dict[str, Any], i: int) -> Any:
    """The weights of a layer, from the names of BERT's checkpoint to torch's."""
    theirs, ours = f"encoder.layer.{i}.", f"layers.{i}."
    names = {
        "attention.output.dense": "self_attn.out_proj",
        "attention.output.LayerNorm": "norm1",
        "intermediate.dense": "linear1",
        "output.dense": "linear2",
        "output.LayerNorm": "norm2",
    }
    for kind in ("weight", "bias"):
        parts = [weights[f"{theirs}attention.self.{part}.{kind}"] for part in ("query", "key", "value")]
        yield f"{ours}self_attn.in_proj_{kind}", torch.cat(parts)
        for name, renamed in names.items():
            yield f"{ours}{renamed}.{kind}", weights[f"{theirs}{name}.{kind}"]
