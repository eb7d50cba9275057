"""The program: choices and output."""

import json
from pathlib import Path
from typing import Any

import pytest

from gpu_check import __main__ as program
from gpu_check.sections import NoDevice

MEMORY = [f"tests/conformance/test_memory{part}.py" for part in ("", "_rows")]
FOUND: dict[str, Any] = {
    "at": "2026-11-20T10:00:00Z",
    "commit": "0123",
    "dirty": False,
    "backend": "cuda",
    "device": "NVIDIA H200",
    "driver": "580",
    "cores": 16,
    "packages": {},
    "doctor": {"backends": []},
}


@pytest.fixture
def sections(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, list[str]]]:
    """The sections that ran, and the tests chosen for each."""
    ran: list[tuple[str, list[str]]] = []

    def run(name: str, seconds: float, workers: int, selected: list[str], cards: list[str]) -> Any:
        ran.append((name, selected))
        line = {"case": "tests/conformance/test_blas.py::test_a", "when": "call", "outcome": "passed", "seconds": 0.1}
        ended = {"code": 0, "seconds": 1.0, "timed_out": False}
        return [{**line, "ops": ["blas.gemm", "blas.gemm of f32", "test.own"]}], ended

    monkeypatch.setattr(program, "test_section", run)
    monkeypatch.setattr(program, "probe", lambda device, commit, tree: FOUND)
    return ran


def run(folder: Path, *options: str) -> int:
    return program.main(["--summaries", str(folder / "summaries"), "--records", str(folder / "records"), *options])


def test_a_summary_and_a_full_record_are_written(sections: list[Any], tmp_path: Path) -> None:
    assert run(tmp_path, "--only", "conformance") == 0
    assert sections == [("conformance", [])]
    record = json.loads((tmp_path / "records" / "2026-11-20-h200.json").read_text())
    assert list(record["sections"]["conformance"]["cases"]) == ["tests/conformance/test_blas.py::test_a"]
    assert record["ops"] == {"blas.gemm": {"passed": 1, "failed": 0, "dtypes": {"f32": 1}}}
    summary = json.loads((tmp_path / "summaries" / "2026-11-20-h200.json").read_text())
    assert summary["conformance"] == {
        "ended": {"seconds": 1.0},
        "tests/conformance/test_blas.py": {"passed": 1},
    }


def test_chosen_tests_are_noted_since_they_prove_no_library(sections: list[Any], tmp_path: Path) -> None:
    assert run(tmp_path, "--only", "conformance", "--tests", "tests/conformance/test_blas.py", "--name", "mine") == 0
    summary = json.loads((tmp_path / "summaries" / "mine.json").read_text())
    assert summary["conformance"]["ended"]["chosen"] == ["tests/conformance/test_blas.py"]


@pytest.mark.parametrize(
    "changed, wanted",
    [
        ([], []),
        (["docs/coverage.md"], []),
        (["tests/faults/cuda/test_kills.py"], [("faults", [])]),
        (["tests/conformance/test_memory.py"], [("conformance", MEMORY)]),
    ],
)
def test_only_what_changed_runs(
    changed: list[str], wanted: list[Any], sections: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = program.proofs(program.stored())  # a library that has not been on a GPU yet has none
    monkeypatch.setattr(program, "proofs", lambda _: {group: proof or found["blas"] for group, proof in found.items()})
    monkeypatch.setattr(program, "changed_since", lambda commit: changed)
    assert run(tmp_path, "--changed") == 0
    assert sections == wanted


def test_after_a_change_of_the_core_all_suites_run(
    sections: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(program, "changed_since", lambda commit: ["src/callboard/core/op.py"])
    assert run(tmp_path, "--changed", "--list") == 0
    assert sections == []
    assert {"blas", "blas_lt", "fft", "memory"} <= set(capsys.readouterr().out.strip().partition(": ")[2].split(", "))
    assert run(tmp_path, "--changed") == 0
    assert [name for name, _ in sections] == ["conformance", "faults"]
    assert {"tests/conformance/test_blas.py", "tests/test_examples.py"} <= set(sections[0][1])
    assert not any(file.startswith("tests/faults/") for file in sections[0][1])


@pytest.mark.parametrize("options", [["--changed", "--only", "bench"], ["--changed", "--tests", "a"], ["--list"]])
def test_options_that_contradict_are_refused(options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        program.main(options)
    assert "--changed" in capsys.readouterr().err


def test_without_a_device_it_says_in_one_line_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def probe(*_: Any) -> Any:
        raise NoDevice("no driver;\ninstall it")

    monkeypatch.setattr(program, "probe", probe)
    assert run(tmp_path) == 2
    assert capsys.readouterr().err == "scripts/gpu-check: no driver; install it\n"
    assert list(tmp_path.iterdir()) == []
