"""The benchmarks of engines, run with few repeats."""

from pathlib import Path

import pytest
from tests.test_benchmarks import run


@pytest.mark.slow
def test_engines(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime", reason="for the extra onnx")
    pytest.importorskip("safetensors", reason="for the extra demo")
    results = run(tmp_path, "engines")["results"]
    assert {"callboard", "callboard, recorded", "onnxruntime", "raw"} <= set(results["1 x 16"])
    assert max(results["1 x 16, difference"].values()) < 1e-4


@pytest.mark.slow
def test_calls_of_engines(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime", reason="for the extra onnx")
    results = run(tmp_path, "engine_calls", "--calls", "64", "--isolation", "thread")["results"]
    assert {"raw", "awaited", "blocking", "refs", "process"} <= set(results["small"])
    assert set(results["two layers recorded, thread"]) >= {"by hand", "engine"}
