"""The figures in README.md and docs/performance.md."""

import copy
import importlib
import inspect
import re
from pathlib import Path
from typing import Any

import pytest

from gpu_check import figures
from gpu_check.figures import BLOCKS, HEADLINE, IN_A_ROW, KILLED, PAGES, block, main, replaced
from gpu_check.sections import BENCHMARKS
from gpu_check.summary import stored

ROOT = Path(__file__).parents[3]


def spread(value: float) -> list[float]:
    return [value * 0.9, value, value * 1.1]


RUN: dict[str, Any] = {
    "name": "2026-11-20-h200",
    "probe": {
        "at": "2026-11-20T10:00:00Z",
        "commit": "0123456789abcdef",
        "dirty": False,
        "backend": "cuda",
        "device": "NVIDIA H200",
        "driver": "580.159",
    },
    "benchmarks": {
        "recovery": {
            "rounds": 5,
            "from the fault": {"hot, illegal": spread(0.15)},
            "from the report": {"hot, illegal": spread(0.0009)},
        },
        "ops": {
            "sequential ask 64x64": {"process": spread(45e-6), "cublas": spread(19e-6)},
            "pipelined 64x64": {"process": spread(12.5e-6), "torch": spread(10e-6)},
        },
        "losses": {"rounds": 3, "5 standbys": {"loss 1": spread(0.05), "loss 2": spread(0.1)}},
        "poisoned": {"callboard, round 1": {"answered": 12345, "failed": 0, "p99": 0.05}},
        "copies": {"ended": {"timed_out": True}},
    },
}
DESCRIBED = "[2026-11-20-h200](hardware/2026-11-20-h200.json), NVIDIA H200, driver 580.159, commit 0123456789"


def test_the_pages_have_the_figures_of_the_stored_runs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--check"]) == 0, capsys.readouterr().err


def test_every_figure_was_measured() -> None:
    runs = stored()
    assert [name for name in BLOCKS if block(name, runs, "").startswith("Not measured")] == []


def test_four_figures_are_in_the_readme() -> None:
    rows = [line for line in block(HEADLINE, stored(), "").splitlines() if line.startswith("| ")]
    assert len(rows) == 1 + 4


def test_a_row_for_each_figure_that_was_measured() -> None:
    assert block(HEADLINE, [RUN], "hardware").splitlines() == [
        "| what | measured |",
        "|---|---|",
        f"| {KILLED.what} | 12,345 answered, 0 failed, p99 50 ms |",
        f"| {IN_A_ROW}, five hot standbys | 45 to 110 ms (2 losses in each of 3 rounds) |",
        "| 64×64 products, each awaited before the next | 45 µs; cuBLAS called directly 19 µs (2.37 times) |",
        "",
        f"Medians. Run: {DESCRIBED}.",
    ]
    recovery = block("recovery", [RUN], "hardware")
    assert "| 900 µs (810 to 990, 5 rounds) |" in recovery
    assert "hot standby | 150 ms (135 to 165, 5 rounds) |" in recovery


def test_the_newest_run_that_has_a_figure_gives_it() -> None:
    newer = copy.deepcopy(RUN) | {"name": "newer"}
    newer["probe"]["dirty"] = True
    newer["benchmarks"] = {"recovery": {"rounds": 3, "from the fault": {"hot, illegal": spread(0.12)}}}
    shown = block("recovery", [newer, RUN], "hardware")
    assert "120 ms (108 to 132, 3 rounds)" in shown
    assert "150 ms" not in shown
    assert "[newer](hardware/newer.json)" in shown
    assert f"* {DESCRIBED}" in shown
    assert "with uncommitted changes" in shown


def test_problems_are_told_beside_what_solves_them_too() -> None:
    run = copy.deepcopy(RUN)
    run["benchmarks"] = {
        "blas_lt": {
            "rounds": 7,
            "matmul 8192 fp8": {
                "process": spread(8e-4),
                "process, speed": spread(989.5),
                "torch": spread(1e-3),
                "torch, speed": spread(900),
            },
            "plans": {"hits": 3},
        }
    }
    assert block("blas_lt", [run], "hardware").splitlines()[:3] == [
        "| problem | callboard | eager torch |",
        "| --- | --- | --- |",
        "| matmul 8192 fp8 | 800 µs (990 TFLOP/s, 50% of peak) | 1 ms (900 TFLOP/s) |",
    ]


def test_a_run_on_the_cpu_gives_no_figure_of_a_gpu() -> None:
    probe = {**RUN["probe"], "backend": "cpu", "device": "some CPU", "driver": "", "cores": 2}
    results = {"rounds": 5, "svd 512 f64": {"process": spread(0.08), "direct": spread(0.09)}}
    run = {"name": "cpu", "probe": probe, "benchmarks": {"solver": results}}
    assert block("solver", [run], "hardware").startswith("Not measured yet")
    shown = block("solver-cpu", [run], "hardware")
    assert "| svd 512 f64 | 80 ms | 90 ms |" in shown
    assert "some CPU, 2 cores, commit 0123456789" in shown


def test_the_benchmarks_still_have_these_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """A renamed result would leave its row out."""
    named = {entry.benchmark for one in BLOCKS.values() for entry in (one if isinstance(one, list) else [one])}
    assert named <= set(BENCHMARKS)
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    loads = importlib.import_module("ops")._loads("cuda", False, None)
    used = set(re.findall(r'"([\w ]+ \d+x\d+)"', inspect.getsource(figures)))
    assert used
    assert used <= set(loads)


@pytest.mark.parametrize("text", ["no markers", "twice"])
def test_each_block_is_needed_once(text: str) -> None:
    page = (ROOT / "README.md").read_text("utf-8")
    with pytest.raises(ValueError, match="each block must be there once"):
        replaced(page + page if text == "twice" else text, [HEADLINE], [], "")


def test_every_block_has_a_page() -> None:
    assert sorted(name for names in PAGES.values() for name in names) == sorted(BLOCKS)
