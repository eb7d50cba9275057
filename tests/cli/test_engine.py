"""``callboard engine``: plans in a lower precision."""

from pathlib import Path

import numpy as np
import pytest
from tests.kernel.engine.models import linear

import callboard as cb
from callboard.cli import main
from callboard.kernel.engine import TrtRuntime

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


def test_a_plan_keeps_its_reason_and_refuses_options_of_models(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, plan, again = tmp_path / "linear.onnx", tmp_path / "linear.plan", tmp_path / "again.plan"
    model.write_bytes(linear(2))
    assert main(["engine", "build", str(model)]) == 0
    reason = capsys.readouterr().out.splitlines()[0].rpartition("measured")[2]
    assert "onnxruntime" in reason
    assert main(["engine", "build", str(plan), "-o", str(again)]) == 0
    assert reason in capsys.readouterr().out
    for action in (["inspect"], ["bench", "-n", "3"]):
        assert main(["engine", *action, str(again)]) == 0
        assert reason in capsys.readouterr().out.splitlines()[0]
    for action in ("build", "inspect", "bench"):
        for option in (["--engine", "callboard"], ["--profile", "x=1x4:2x4:8x4"]):
            assert main(["engine", action, str(plan), *option]) == 2
            assert f"is a plan, which has its engine, profiles and precision already, and {option[0]} is of ONNX" in (
                capsys.readouterr().err
            )
    for option in (["--engine", "tensorrt"], ["--refit"], ["--precision", "int8"]):
        assert main(["engine", "build", str(plan), *option]) == 2
        assert "is a plan, which has its engine" in capsys.readouterr().err


def test_a_plan_of_tensorrt_is_built_and_described(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        TrtRuntime()
    except cb.BackendUnavailable:
        pytest.skip("TensorRT is not installed")
    model, plan = tmp_path / "linear.onnx", tmp_path / "linear.plan"
    model.write_bytes(linear())
    given = ["engine", "build", str(model), "--engine", "tensorrt", "--profile", "x=1x4:2x4:8x4"]
    assert main([*given, "--target", "SM89"]) == 0
    told = capsys.readouterr().out
    assert told.startswith("TensorRT")
    assert "input  x: FLOAT[-1, 4]" in told
    assert main(["engine", "inspect", str(plan)]) == 0
    assert "for SM89, which callboard does not execute" in capsys.readouterr().out
    assert main([*given, "--target", "SM1"]) == 2
    assert "has no target 'SM1'" in capsys.readouterr().err
