import argparse
import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from callboard.cli import main
from callboard.cli.demo import command, versus
from callboard.cli.demo.digits import load_digits
from callboard.cli.demo.run import Outcome
from callboard.cli.demo.settings import RANK

SVG = "{http://www.w3.org/2000/svg}"


def test_demo_survives_a_killed_host_and_agrees_with_numpy(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    picture = tmp_path / "digits.svg"
    code = main(["demo", "--device", "cpu", "--standby", "warm", "--picture", str(picture)])
    text = capsys.readouterr().out
    assert code == 0, text
    assert "SIGKILL to the context host" in text
    assert "context lost" in text
    assert "warm standby took over" in text
    assert "going on from iteration 30" in text
    assert "generations      2" in text
    assert ": equal" in text
    marks = [mark for mark in ET.parse(picture).getroot().iter(f"{SVG}g") for mark in mark.iter(f"{SVG}text")]
    assert len(marks) == 1797


@pytest.mark.gpu
@pytest.mark.fault
@pytest.mark.usefixtures("cuda")
@pytest.mark.parametrize("standby", ["hot", "warm"])
def test_demo_survives_an_illegal_access(capsys: pytest.CaptureFixture[str], standby: str) -> None:
    code = main(["demo", "--device", "cuda", "--standby", standby])
    text = capsys.readouterr().out
    assert code == 0, text
    assert "a kernel writes to an illegal address" in text
    assert "CUDA_ERROR_ILLEGAL_ADDRESS" in text or "700" in text
    assert f"{standby} standby took over" in text
    assert "generations      2" in text
    assert ": equal" in text


@pytest.mark.gpu
@pytest.mark.fault
@pytest.mark.slow
@pytest.mark.usefixtures("cuda")
def test_torch_does_not_survive_it(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    assert main(["demo", "--device", "cuda", "--versus", "torch"]) == 0
    text = capsys.readouterr().out
    assert "torch raises" in text
    assert "the next operation: worked" not in text
    assert "with torch" in text


def test_demo_without_a_fault_needs_no_process(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--device", "cpu", "--isolation", "thread", "--no-fault"]) == 0
    text = capsys.readouterr().out
    assert "generations      1" in text
    assert "of which 0 failed" in text
    assert "time lost" not in text


def test_a_context_in_a_thread_cannot_be_lost(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--device", "cpu", "--isolation", "thread"]) == 2
    assert "--no-fault" in capsys.readouterr().err


def test_a_device_that_is_not_there_is_a_message(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--device", "cpu:7", "--no-fault"]) == 1
    assert "BackendUnavailable" in capsys.readouterr().err


def test_a_wrong_result_is_not_equal(capsys: pytest.CaptureFixture[str]) -> None:
    digits = load_digits()
    explained = np.full(RANK, 0.1)
    outcome = Outcome(np.eye(RANK, 64), explained, np.zeros((1797, 2)), 1, 1, 1, 0, 1.0, None, None)
    assert command._compare(outcome, digits) > command.TOLERANCE
    assert "NOT equal" in capsys.readouterr().out


def test_versus_without_torch_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    lines: list[str] = []
    assert versus.versus_torch("cpu", True, lines.append) is None
    assert lines == ["torch is not installed here: pip install torch"]


def test_versus_tells_of_the_death_and_the_second_process(monkeypatch: pytest.MonkeyPatch) -> None:
    first = [{"event": "started", "at": 0.0}, {"event": "fault", "at": 5.0, "iteration": 35}]
    second = [
        {"event": "started", "at": 5.1},
        {"event": "imported", "at": 7.1, "version": "2"},
        {"event": "resumed", "at": 7.2, "iteration": 30},
        {"event": "checkpoint", "at": 7.5, "iteration": 40},
        {"event": "done", "at": 8.0, "explained": [0.15, 0.14]},
    ]
    runs = iter([(first, -9), (second, 0)])
    monkeypatch.setattr("importlib.util.find_spec", lambda name: argparse.Namespace())
    monkeypatch.setattr(versus, "_run", lambda *args, **kwargs: next(runs))
    lines: list[str] = []
    assert versus.versus_torch("cpu", True, lines.append) == pytest.approx(2.5)
    told = "\n".join(lines)
    assert "signal 9" in told
    assert "from iteration 30" in told
    assert "29.0000%" in told


@pytest.mark.slow
def test_versus_torch_itself(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    assert main(["demo", "--device", "cpu", "--versus", "torch"]) == 0
    assert "with torch" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.few(1)
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_output_that_nobody_reads_is_no_traceback(unbuffered: str) -> None:
    demo: Any = [sys.executable, "-m", "callboard", "demo", "--device", "cpu", "--isolation", "thread", "--no-fault"]
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    process = subprocess.Popen(demo, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    error = process.stderr.read()
    process.stderr.close()
    assert process.wait(30) == 128 + 13
    assert error == ""
