"""Extras of a release: what is installed, what is resolved only, and what must not bring wheels for GPUs."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from devtools import extras
from devtools.extras import IMPORT, Attempt, Installed, closure, for_gpus, installed, name_of, report, uninvited

DECLARED = {"serve": ["uvicorn>=0.35"], "demo": ["callboard[serve]", "onnxruntime"], "train": ["Torch>=2.7"]}
BROUGHT = {
    "train": ["torch", "nvidia-cublas", "triton"],
    "demo": ["onnxruntime", "nvidia-cublas"],
    "serve": ["uvicorn"],
}


def test_names_and_requirements() -> None:
    assert name_of("nvidia_cudnn.cu13>=9") == "nvidia-cudnn-cu13"
    assert closure(DECLARED, "demo") == ["uvicorn>=0.35", "onnxruntime"]
    assert for_gpus(["nvidia-cublas", "cuda-toolkit", "numpy", "nvtx", "triton", "cutensor-cu13"]) == [
        *("cuda-toolkit", "cutensor-cu13", "nvidia-cublas", "triton")
    ]
    assert uninvited(["torch"], ["triton"]) == uninvited(["cuda-toolkit"], ["nvidia-cublas"]) == []


def test_a_line_for_each_extra() -> None:
    results = [Installed("", 12.4, None), Installed("ray", 600.0, "not finished"), Installed("train", 9.0, None, 17)]
    assert [" ".join(report(one).split()) for one in results] == [
        "(none) 12 s ok, imported",
        "ray 600 s not finished",
        "train 9 s ok, resolved and not installed: 17 wheels are for GPUs",
    ]


@pytest.mark.parametrize(
    "extra, problem, steps",
    [("serve", None, ["install", "check", "callboard", IMPORT]), ("train", None, []), ("demo", "nvidia-cublas", [])],
)
def test_what_happens_to_an_extra(
    extra: str, problem: str | None, steps: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[tuple[str, ...]] = []
    monkeypatch.setattr(extras, "environment", lambda folder, name, seconds: "python")
    monkeypatch.setattr(Attempt, "resolved", lambda self, what: BROUGHT[extra])
    monkeypatch.setattr(Attempt, "run", lambda self, *arguments: ran.append(arguments))
    one = installed(tmp_path, Path("a.whl"), extra, closure(DECLARED, extra), 60)
    assert (one.problem is None) == (problem is None)
    assert problem is None or problem in str(one.problem)
    assert [next(step for step in steps if step in row) for row in ran] == steps


def test_what_pip_would_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(self: Attempt, *arguments: str) -> None:
        plan = {"install": [{"metadata": {"name": "Nvidia_CuBLAS"}}, {"metadata": {"name": "numpy"}}]}
        Path(arguments[arguments.index("--report") + 1]).write_text(json.dumps(plan))

    monkeypatch.setattr(extras, "environment", lambda folder, name, seconds: "python")
    monkeypatch.setattr(Attempt, "run", run)
    assert Attempt(tmp_path, "a", 60).resolved("a.whl") == ["nvidia-cublas", "numpy"]


@pytest.mark.slow
def test_what_is_installed_here_is_imported() -> None:
    subprocess.run([sys.executable, "-c", IMPORT, "msgspec", "opt-einsum"], check=True, timeout=60)
