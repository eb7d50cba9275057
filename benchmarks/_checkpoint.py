"""A checkpoint of MiniLM's form: the real one where it is installed, else random weights that cost the same."""

import json
from pathlib import Path

import numpy as np

import callboard as cb
from callboard.serve.bundled.minilm_ops import WIDTH
from callboard.serve.bundled.weights import model_folder

WORDS, PLACES, LAYERS, INNER = 30522, 512, 6, 1536
CONFIG = {
    "hidden_size": WIDTH,
    "layer_norm_eps": 1e-12,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 12,
    "intermediate_size": INNER,
}


def checkpoint(spare: Path) -> tuple[Path, str]:
    """The folder of a model, and whose weights it has.

    Args:
        spare: Where random weights are written.
    """
    try:
        return model_folder(), "all-MiniLM-L6-v2"
    except cb.BackendUnavailable:
        from safetensors.numpy import save_file

        (spare / "config.json").write_text(json.dumps(CONFIG))
        save_file(_random(), spare / "model.safetensors")
        return spare, "random"


def _random() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    shapes: dict[str, tuple[int, ...]] = {
        "embeddings.word_embeddings.weight": (WORDS, WIDTH),
        "embeddings.position_embeddings.weight": (PLACES, WIDTH),
        "embeddings.token_type_embeddings.weight": (2, WIDTH),
    }
    norms = ["embeddings.LayerNorm"]
    for i in range(LAYERS):
        layer = f"encoder.layer.{i}."
        norms += [f"{layer}attention.output.LayerNorm", f"{layer}output.LayerNorm"]
        dense = dict.fromkeys(("attention.self.query", "attention.self.key", "attention.self.value"), (WIDTH, WIDTH))
        dense |= {"attention.output.dense": (WIDTH, WIDTH)}
        dense |= {"intermediate.dense": (INNER, WIDTH), "output.dense": (WIDTH, INNER)}
        for name, shape in dense.items():
            shapes |= {f"{layer}{name}.weight": shape, f"{layer}{name}.bias": shape[:1]}
    weights = {name: 0.05 * rng.standard_normal(shape, np.float32) for name, shape in shapes.items()}
    for name in norms:
        weights |= {f"{name}.weight": np.ones(WIDTH, "f4"), f"{name}.bias": np.zeros(WIDTH, "f4")}
    return weights
