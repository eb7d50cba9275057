"""Summaries of runs: contents, and the size of ``docs/hardware``."""

import json
from typing import Any

import pytest

from gpu_check.summary import HARDWARE, stored, summary_of, written

LIMIT = 500
"""Lines of all files in ``docs/hardware`` together."""


def measured(value: float, **more: Any) -> dict[str, Any]:
    return {"min": value, "median": value, "max": value, "values": [value] * 3, "ratio": {"median": 1.0}, **more}


RECORD: dict[str, Any] = {
    "probe": {
        "at": "2026-11-20T10:00:00Z",
        "commit": "0123",
        "dirty": False,
        "backend": "cuda",
        "device": "NVIDIA H200",
        "driver": "580",
        "cores": 16,
        "packages": {"numpy": "2.5"},
        "doctor": {"limits": []},
    },
    "sections": {
        "conformance": {
            "code": 1,
            "seconds": 3.0,
            "timed_out": False,
            "chosen": [],
            "cases": {
                "tests/conformance/test_blas.py::test_a[x]": {"outcome": "passed", "seconds": 0.1},
                "tests/conformance/test_blas.py::test_b": {"outcome": "skipped", "seconds": 0.1, "why": "not here"},
                "tests/conformance/test_fft.py::test_c": {"outcome": "failed", "seconds": 0.1, "why": "long\nE  why"},
            },
        }
    },
    "ops": {
        "blas.gemm": {"passed": 2, "failed": 0, "dtypes": {"f32": 2}},
        "fft.fft": {"passed": 0, "failed": 1},
        "tensor.contract": {"passed": 3, "failed": 0, "engines": {"builtin": 2, "cutensor": 1}},
        "tensor.reduction": {"passed": 1, "failed": 0, "engines": {"builtin": 1}},
    },
    "benchmarks": {
        "blas_lt": {
            "settings": {"rounds": 3},
            "environment": {"cores": 16},
            "results": {
                "matmul": {"process": measured(1 / 3, speed=measured(7.0)), "torch": measured(0.5)},
                "nbytes": 8,
                "plans": {"process": {"hits": 3}},
            },
            "bars": [
                {"what": "a", "value": 1.0, "limit": 0.9, "at_least": True, "held": True},
                {"what": "b", "value": 0.8, "limit": 0.9, "at_least": True, "held": False},
                {"what": "c", "value": None, "limit": 0.9, "at_least": True, "held": None},
            ],
            "ended": {"code": 0, "seconds": 3.0, "timed_out": False},
        },
        "late": {"ended": {"code": None, "seconds": 0.0, "timed_out": True}},
    },
}


def test_it_keeps_counts_failures_ops_and_figures() -> None:
    found = summary_of(RECORD)
    assert "doctor" not in found.pop("probe")
    assert found == {
        "conformance": {
            "ended": {"code": 1, "seconds": 3.0},
            "tests/conformance/test_blas.py": {"passed": 1, "skipped": 1},
            "tests/conformance/test_fft.py": {"failed": 1},
            "failures": {"tests/conformance/test_fft.py::test_c": "E  why"},
        },
        "libraries": {
            "blas": {"ops": {"gemm": 2}},
            "fft": {"ops": {}},
            "tensor": {"ops": {"contract": 3, "reduction": 1}, "engines": {"builtin": 3, "cutensor": 1}},
        },
        "benchmarks": {
            "blas_lt": {
                "rounds": 3,
                "bars": {"held": 1, "missed": {"b": [0.8, 0.9]}},
                "numbers": {"nbytes": 8},
                "matmul": {"process": [0.333333] * 3, "process, speed": [7.0] * 3, "torch": [0.5] * 3},
            },
            "late": {"ended": {"code": None, "seconds": 0.0, "timed_out": True}},
        },
    }


def test_many_failures_are_counted() -> None:
    cases = {f"t.py::test_{i:03}": {"outcome": "failed", "seconds": 0.0, "why": "so"} for i in range(50)}
    section = {"code": 1, "seconds": 1.0, "timed_out": False, "cases": cases}
    found = summary_of({"probe": RECORD["probe"], "sections": {"conformance": section}})["conformance"]
    assert found["t.py"] == {"failed": 50}
    assert len(found["failures"]) == 21
    assert found["failures"]["..."] == "30 more"


def test_one_line_for_a_test_file_or_a_benchmark() -> None:
    summary = summary_of(RECORD)
    text = written({**summary, "name": "a"})
    assert json.loads(text) == summary
    lines = text.splitlines()
    assert ' "probe": {"at": "2026-11-20T10:00:00Z", "commit": "0123",' in text
    assert '  "tests/conformance/test_blas.py": {"passed": 1, "skipped": 1},' in lines
    assert any(line.startswith(' "libraries": {"blas": {"ops": {"gemm": 2}}') for line in lines)
    assert sum('"matmul": {"process": [' in line for line in lines) == 1


def test_the_stored_runs_are_small_and_in_this_form() -> None:
    lines = sum(path.read_text("utf-8").count("\n") for path in HARDWARE.rglob("*") if path.is_file())
    assert lines <= LIMIT, "remove the runs that docs/coverage.md and docs/performance.md no longer name"
    for one in stored():
        assert (HARDWARE / f"{one['name']}.json").read_text("utf-8") == written(one), one["name"]


def test_the_newest_comes_first() -> None:
    days = [one["probe"]["at"] for one in stored()]
    assert days == sorted(days, reverse=True)
    assert len(days) > 1


@pytest.mark.parametrize("one", stored(), ids=lambda one: str(one["name"]))
def test_the_table_of_runs_names_it(one: dict[str, Any]) -> None:
    assert f"]({one['name']}.json)" in (HARDWARE / "README.md").read_text("utf-8")
