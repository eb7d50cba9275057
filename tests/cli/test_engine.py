"""``callboard engine``: plans in a lower precision."""

from pathlib import Path

import numpy as np
import pytest
from tests.kernel.engine.models import linear

from callboard.cli import main

pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")


def test_a_plan_in_eight_bits_says_what_it_costs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, batch, plan = tmp_path / "linear.onnx", tmp_path / "batch.npz", tmp_path / "linear.plan"
    model.write_bytes(linear())
    np.savez(batch, x=np.random.default_rng(0).standard_normal((6, 4)).astype("f4"))
    given = ["engine", "build", str(model), "-o", str(plan), "--precision", "int8"]
    assert main([*given, "--calibration", str(batch)]) == 0
    told = capsys.readouterr().out
    assert told.startswith("int8: outputs differ from f32 by")
    assert "MatMul m" in told
    assert plan.read_bytes().startswith(b"CBENGINE")
    assert main(given) == 2
    assert "--precision needs --calibration FILE.npz" in capsys.readouterr().err
