"""MiniLM computed by callboard's ops and recorded as one message, beside eager torch and beside torch.compile.

    python benchmarks/encoder.py --json encoder.json
    python benchmarks/encoder.py --quick --device cpu

32 texts of 128 tokens, bf16 on CUDA. Torch's layers are its own ``TransformerEncoder`` in inference mode, whose fast
path is one call a layer. Where the weights are not installed, random ones of the same form take their place.
"""

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from _checkpoint import WORDS, checkpoint
from _maths import Problem, Run, Subjects, compare

from callboard.serve.bundled.minilm_ops import encoded, padded, weights_on
from callboard.serve.bundled.minilm_torch import network


def problems(kind: str, quick: bool) -> list[Problem]:
    if kind == "cpu":
        settings = {"texts": 2 if quick else 8, "tokens": 32, "dtype": "f32", "compiled": False}
        return [Problem("MiniLM, {texts} texts of {tokens} tokens, {dtype}, recorded".format(**settings), settings, 3)]
    settings = {"texts": 32, "tokens": 128, "dtype": "bf16"}
    title = "MiniLM, {texts} texts of {tokens} tokens, {dtype}, recorded".format(**settings)
    both = ((False, "eager torch", 1.3), (True, "torch.compile", 1.0))
    return [
        Problem(f"{title}, beside {name}", settings | {"compiled": compiled}, 100, bar, base="torch", without=("raw",))
        for compiled, name, bar in both
    ]


def drawn(texts: int, tokens: int) -> list[list[int]]:
    found: list[list[int]] = np.random.default_rng(4).integers(1000, WORDS, (texts, tokens)).tolist()
    return found


async def ours(device: Any, texts: int, tokens: int, dtype: str, compiled: bool) -> Run:
    with tempfile.TemporaryDirectory() as spare:
        weights = weights_on(device, checkpoint(Path(spare))[0], dtype)
    text = {key: device.put(value) for key, value in padded(drawn(texts, tokens)).items() if key != "lengths"}
    await encoded(device, weights, text)
    with device.record(**text) as model:
        model.returns(encoded(device, weights, text))
    last: dict[str, Any] = {}

    def step() -> Any:
        last["out"] = model.replay()
        return last["out"]

    async def result() -> Any:
        return await last["out"].get()

    return Run(step, result)


def torch_run(torch: Any, where: str, texts: int, tokens: int, dtype: str, compiled: bool) -> Run:
    from safetensors.torch import load_file

    kind = {"f32": torch.float32, "bf16": torch.bfloat16}[dtype]
    with tempfile.TemporaryDirectory() as spare:
        folder, _ = checkpoint(Path(spare))
        config = json.loads((folder / "config.json").read_text("utf-8"))
        weights = load_file(folder / "model.safetensors")
    weights = {name: x.to(kind) for name, x in weights.items() if x.is_floating_point()}
    layers = network(torch, config, weights, torch.device(where))
    given = torch.tensor(drawn(texts, tokens)).to(where)
    run = torch.compile(layers) if compiled else layers
    last: dict[str, Any] = {}

    def step() -> None:
        with torch.inference_mode():
            last["out"] = run(given, None)

    return Run(step, lambda: last["out"].float().cpu().numpy())


def torch(torch: Any, **settings: Any) -> Run:
    return torch_run(torch, "cuda", **settings)


def direct(**settings: Any) -> Run:
    import torch

    return torch_run(torch, "cpu", **settings)


def raw(cuda: Any, **settings: Any) -> Run:
    raise NotImplementedError("no one library has the whole of it")


if __name__ == "__main__":
    compare(__doc__, "dnn", problems, Subjects(ours, direct, raw, None, torch), name="encoder")
