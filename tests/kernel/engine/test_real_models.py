"""Models that come with packages, where those are installed: both engines give what ONNX Runtime gives alone."""

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import callboard as cb

onnxruntime = pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")
RNG = np.random.default_rng(9)


def normal(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype("f4")


def speech(n: int, samples: int, rate: int) -> dict[str, Any]:
    return {"input": 0.1 * normal(n, samples), "state": 0.1 * normal(2, n, 128), "sr": np.array(rate)}


def bytes_of(n: int) -> dict[str, Any]:
    return {"bytes": RNG.integers(0, 257, (n, 2048)).astype("i4")}


MODELS: dict[str, tuple[str, list[dict[str, Any]], float]] = {
    "silero_vad/data/silero_vad.onnx": (
        "silero_vad", [speech(1, 576, 16000), speech(3, 576, 16000), speech(2, 288, 8000)], 1e-4,
    ),
    "magika/models/standard_v3_3/model.onnx": ("magika", [bytes_of(1), bytes_of(2)], 1e-4),
    "rapidocr/models/PP-OCRv6_rec_small.onnx": (
        "rapidocr", [{"x": normal(1, 3, 48, 160)}, {"x": normal(2, 3, 48, 80)}], 1e-4,
    ),
    "rapidocr/models/PP-OCRv6_det_small.onnx": ("rapidocr", [{"x": normal(1, 3, 64, 96)}], 1e-2),
}  # fmt: skip
"""File, package, inputs, and the largest difference to an output's largest value. The detector's outputs for noise are
below 1e-3, where ONNX Runtime with and without its optimisations differs by 4e-3."""


@pytest.mark.slow
@pytest.mark.parametrize("file", MODELS)
async def test_engines_agree_over_shapes(file: str) -> None:
    package, calls, most = MODELS[file]
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        pytest.skip(f"{package} is not installed")
    path = Path(spec.origin).parent.parent / file
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    async with cb.device("cpu") as dev:
        for engine in ("onnxruntime", "callboard"):
            context = dev.engine.context(await dev.engine.build(path, engine=engine))
            for call in calls:
                outs = context(call)
                for ref, expected in zip(
                    outs if isinstance(outs, tuple) else (outs,), session.run(None, call), strict=True
                ):
                    await ref
                    assert np.abs(await ref.get() - expected).max() <= most * np.abs(expected).max()
