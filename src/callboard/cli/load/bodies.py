"""Request bodies that fit a model, derived from the server's metadata of it."""

import json
import random
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import quote

import numpy as np

from callboard.serve.encoding.messages import HEADER_LENGTH
from callboard.serve.encoding.results import to_binary, to_json
from callboard.serve.tensors import Tensor

__all__ = ["Post", "embedding_posts", "generation_posts", "infer_posts", "some_texts"]

MICROSECONDS = 1e6
KINDS = 64
"""Different requests that are sent in turn."""
WORDS = "the of a kernel context stream array batch host is lost and request model in memory for error actor".split()  # noqa: SIM905 -- to be read
MEDIAN, SIGMA, LONGEST = 16, 0.9, 200
"""Median, sigma and maximum of the words per text: log-normal, like those of docstrings."""


class Post(NamedTuple):
    """A request: where to, its body and headers, and whether its response is streamed."""

    path: str
    body: bytes
    headers: dict[str, str]
    streamed: bool = False


def some_texts(seed: int, count: int = KINDS) -> list[str]:
    """Texts of mixed lengths."""
    chance = random.Random(seed)
    lengths = (min(LONGEST, max(1, round(MEDIAN * np.exp(SIGMA * chance.gauss(0, 1))))) for _ in range(count))
    return [" ".join(chance.choices(WORDS, k=length)) for length in lengths]


def embedding_posts(model: str, texts: Sequence[str], each: int) -> list[Post]:
    """Requests to ``/v1/embeddings``.

    Args:
        model: Name of the model.
        texts: Texts, sent in turn.
        each: Texts of a request.
    """
    groups = [[texts[(i + k) % len(texts)] for k in range(each)] for i in range(len(texts))]
    headers = {"content-type": "application/json"}
    return [Post("/v1/embeddings", json.dumps({"model": model, "input": group}).encode(), headers) for group in groups]


def generation_posts(model: str, texts: Sequence[str], *, chat: bool, max_tokens: int) -> list[Post]:
    """Requests for streamed texts, to ``/v1/chat/completions`` or ``/v1/completions``.

    Args:
        model: Name of the model.
        texts: Prompts, sent in turn.
        chat: Each is the message of a user.
        max_tokens: New tokens at most.
    """
    path = "/v1/chat/completions" if chat else "/v1/completions"
    common = {"model": model, "max_tokens": max_tokens, "stream": True, "stream_options": {"include_usage": True}}
    asked = [{"messages": [{"role": "user", "content": text}]} if chat else {"prompt": text} for text in texts]
    headers = {"content-type": "application/json"}
    return [Post(path, json.dumps({**common, **each}).encode(), headers, streamed=True) for each in asked]


def infer_posts(
    metadata: Mapping[str, Any],
    shapes: Mapping[str, Sequence[int]],
    texts: Sequence[str],
    *,
    binary: bool,
    seed: int,
    deadline: float | None = None,
) -> list[Post]:
    """Requests of the Open Inference Protocol with random numbers, and with texts for BYTES.

    Args:
        metadata: Response of ``/v2/models/<name>``.
        shapes: Shapes of inputs, by name. Open extents of other inputs are 1.
        texts: Texts, sent in turn.
        binary: Send and ask for raw bytes after the JSON.
        seed: Seed of the random numbers.
        deadline: Seconds that the server has for a request; None: as many as it needs.

    Raises:
        ValueError: There is no such input, a shape does not fit, or a datatype is unknown.
    """
    tensors = [Tensor(each["name"], each["datatype"], each["shape"]) for each in metadata["inputs"]]
    unknown = next((name for name in shapes if name not in {tensor.name for tensor in tensors}), None)
    if unknown is not None:
        raise ValueError(f"the model has no input {unknown!r}; it takes {', '.join(tensor.name for tensor in tensors)}")
    rng = np.random.default_rng(seed)
    path = f"/v2/models/{quote(metadata['name'])}/infer"
    kinds = KINDS if any(tensor.datatype == "BYTES" for tensor in tensors) else 1
    parameters: dict[str, Any] = {"binary_data_output": binary}
    if deadline is not None:
        parameters["timeout"] = round(deadline * MICROSECONDS)
    return [_infer(path, tensors, shapes, texts, i, rng, parameters) for i in range(kinds)]


def _infer(
    path: str,
    tensors: Sequence[Tensor],
    shapes: Mapping[str, Sequence[int]],
    texts: Sequence[str],
    number: int,
    rng: np.random.Generator,
    parameters: dict[str, Any],
) -> Post:
    inputs, parts = [], []
    binary = parameters["binary_data_output"]
    for tensor in tensors:
        shape = tuple(shapes.get(tensor.name, [max(1, extent) for extent in tensor.shape]))
        if not tensor.fits(shape):
            raise ValueError(f"input {tensor.name!r} cannot have shape {list(shape)}: the model takes {tensor.shape}")
        array = _array(tensor, shape, texts, number, rng)
        described: dict[str, Any] = {"name": tensor.name, "shape": shape, "datatype": tensor.datatype}
        if binary:
            parts.append(bytes(to_binary(tensor, array)))
            described["parameters"] = {"binary_data_size": len(parts[-1])}
        else:
            described["data"] = to_json(tensor, array)
        inputs.append(described)
    head = json.dumps({"inputs": inputs, "parameters": parameters}).encode()
    headers = {HEADER_LENGTH: str(len(head))} if binary else {"content-type": "application/json"}
    return Post(path, b"".join([head, *parts]), headers)


def _array(tensor: Tensor, shape: tuple[int, ...], texts: Sequence[str], number: int, rng: np.random.Generator) -> Any:
    if tensor.datatype == "BYTES":
        count = int(np.prod(shape))
        found = np.empty(count, object)
        found[:] = [texts[(number + i) % len(texts)].encode() for i in range(count)]
        return found.reshape(shape)
    if tensor.dtype.kind in "iub":
        return rng.integers(0, 2, shape).astype(tensor.dtype)
    return rng.random(shape, np.float32).astype(tensor.dtype)
