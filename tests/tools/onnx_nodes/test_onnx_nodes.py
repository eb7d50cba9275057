"""The tool that runs ONNX's node suite."""

import sys
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx", reason="ONNX's node suite is in the package onnx")

from onnx_nodes.__main__ import cases, difference, main


def test_what_differs_is_told() -> None:
    one = np.ones(3, "f4")
    assert not difference([one], [one * (1 + 1e-4)], 1e-3, 1e-7)
    assert not difference([one + np.array([0, 0, 2e-7], "f4")], [one], 0.0, 0.0)
    assert "differs by up to 1" in difference([one], [2 * one], 1e-3, 1e-7)
    assert "float32[3], expected float64[3]" in difference([one], [one.astype("f8")], 1e-3, 1e-7)
    assert "2 other values of 3" in difference([np.array([1, 2, 3])], [np.array([1, 0, 0])], 1e-3, 1e-7)
    assert "1 outputs for 2" in difference([one], [one, one], 1e-3, 1e-7)


@pytest.mark.slow
def test_cases_are_run_and_none_is_wrong(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[Any]) -> None:
    assert len(cases([])) > 1800
    monkeypatch.setattr(sys, "argv", ["onnx-nodes", "test_lstm", "test_resize_upsample", "string_concat", "--refusals"])
    assert main() == 0
    told = capsys.readouterr().out
    assert "a tensor of strings, which no ref can hold" in told
    assert ", 0 wrong" in told
