"""``MiniLM``: lists of tokens to vectors, a real model as a resident actor, by the fastest engine that is installed."""

import importlib.util
from collections.abc import Callable
from pathlib import Path

import numpy as np

from callboard.device.protocol.residents.actor import HostContext, ResidentActor
from callboard.serve.bundled import minilm_onnx, minilm_ops, minilm_torch
from callboard.serve.tensors import Array

__all__ = ["ENGINES", "MiniLM", "engine_of", "reference"]

REFERENCE = Path(__file__).with_name("data") / "minilm.npz"
Embed = Callable[[list[list[int]]], Array]
ENGINES: dict[str, Callable[[Path], Callable[[HostContext], Embed]]] = {
    "onnxruntime": minilm_onnx.prepared,
    "torch": minilm_torch.prepared,
    "ops": minilm_ops.prepared,
}
"""Each reads the weights and imports its package; what that returns puts them on a device."""


def engine_of(backend: str) -> str:
    """The engine for devices of a backend, of those installed; callboard's own ops need no package.

    ONNX Runtime is the fastest on a CPU; as the extra ``demo`` installs it, it computes on CPUs only.
    """
    packages = ("torch",) if backend == "cuda" else ("onnxruntime", "torch")
    return next((name for name in packages if importlib.util.find_spec(name) is not None), "ops")


def reference() -> tuple[list[str], Array]:
    """Texts, and their vectors as sentence-transformers computes them: f32[n, 384]."""
    with np.load(REFERENCE) as data:
        return [str(text) for text in data["texts"]], data["vectors"]


class MiniLM(ResidentActor):
    """all-MiniLM-L6-v2: BERT with 6 layers, the mean of its last layer's vectors, scaled to length 1.

    Vectors differ by less than 1e-6 from those of sentence-transformers, whose import would take seconds in each new
    host.

    Args:
        folder: Folder that :func:`model_folder` returned.
        engine: One of :data:`ENGINES`, mostly ``engine_of(device.backend)``.
    """

    def __init__(self, folder: str, engine: str) -> None:
        self._folder = Path(folder)
        self._engine = engine

    def prepare(self) -> None:
        """Import the engine and read the weights; also in the standby, before it is needed."""
        self._place: Callable[[HostContext], Embed] | None = ENGINES[self._engine](self._folder)

    def setup(self, ctx: HostContext) -> None:
        """Put the model on the device."""
        assert self._place is not None
        self._embed = self._place(ctx)
        self._place = None  # and with it the weights as they were read

    def warm_up(self, ctx: HostContext) -> None:
        """Embed a batch with padding and one without, so that the engine loads what it needs for them."""
        self.setup(ctx)
        self.embed([[101, 102], [101, 7592, 102]])
        self.embed([[101, 102]])

    def embed(self, texts: list[list[int]]) -> Array:
        """Vectors of lists of tokens, f32[n, 384]. They are padded to the longest: texts of like lengths cost least."""
        return self._embed(texts)
