"""README.md: every Python block runs as a reader would run it, and the figures are those of ``docs/hardware/``."""

import ast
import copy
import importlib.machinery
import importlib.util
import json
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from callboard.testing.gpu_check.sections import BENCHMARKS

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text("utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
LIMIT = 40.0

# What the text before the fragments says: `gpu` is an open device, the lines stand in an `async def`.
FRAME = """
import asyncio, os, signal
import numpy as np
import callboard as cb

async def main():
    async with cb.device("cpu", isolation="process") as gpu:
{block}

asyncio.run(main())
"""


def program(block: str) -> str:
    """A block with imports is a program; another is a fragment of one."""
    whole = any(isinstance(node, ast.Import | ast.ImportFrom) for node in ast.walk(_parsed(block)))
    return block if whole else FRAME.format(block=textwrap.indent(block, " " * 8))


def _parsed(block: str) -> ast.Module:
    return ast.parse(compile(block, "README.md", "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT))


def title(block: str) -> str:
    return re.sub(r"\W+", " ", next(line for line in block.splitlines() if "import" not in line and line.strip()))[:30]


def run(source: str) -> "subprocess.CompletedProcess[str]":
    path = os.pathsep.join(filter(None, [str(ROOT / "src"), os.environ.get("PYTHONPATH")]))
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", source],
        env={**os.environ, "PYTHONPATH": path, "OPENBLAS_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )


@pytest.mark.parametrize("block", BLOCKS, ids=title)
def test_block_runs(block: str) -> None:
    done = run(program(block))
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr


def test_the_blocks_are_found_and_a_bad_one_fails() -> None:
    assert len(BLOCKS) == README.count("```python") >= 7
    assert run(program("await gpu.nothing()")).returncode == 1


def test_the_first_example_has_twenty_lines() -> None:
    assert len([line for line in BLOCKS[0].splitlines() if line.strip()]) <= 20


# -- figures ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def script() -> ModuleType:
    loader = importlib.machinery.SourceFileLoader("readme_figures", str(ROOT / "scripts" / "readme-figures"))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    before, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        loader.exec_module(module)
    finally:
        sys.dont_write_bytecode = before
    return module


def _spread(value: float) -> dict[str, Any]:
    return {"min": value * 0.9, "median": value, "max": value * 1.1, "values": [value] * 5, "ratio": None}


RUN: dict[str, Any] = {
    "name": "2026-11-20-nvidia-h200",
    "probe": {
        "at": "2026-11-20T10:00:00Z",
        "commit": "0123456789abcdef",
        "dirty": False,
        "device": "NVIDIA H200",
        "driver": "580.159",
    },
    "benchmarks": {
        "recovery": {
            "results": {
                "from the fault": {"hot, illegal": _spread(0.15)},
                "from the report": {"hot, illegal": _spread(0.0009)},
            }
        },
        "ops": {
            "results": {
                "sequential ask 64x64": {"process": _spread(45e-6), "cublas": _spread(19e-6)},
                "pipelined 64x64": {"process": _spread(12.5e-6), "torch": _spread(10e-6)},
            }
        },
        "copies": {"ended": {"timed_out": True}},
    },
}


def test_the_figures_are_those_of_the_hardware_runs(script: ModuleType) -> None:
    assert script.replaced(README, script.figures(script.hardware_runs())) == README


def test_without_a_run_it_says_so(script: ModuleType, tmp_path: Path) -> None:
    assert script.hardware_runs(tmp_path) == []
    (tmp_path / "tests-only.json").write_text(json.dumps({"probe": RUN["probe"], "ops": {}}), "utf-8")
    assert script.figures(script.hardware_runs(tmp_path)).startswith("Not measured yet")


def test_a_row_for_each_figure_that_was_measured(script: ModuleType) -> None:
    table = script.figures([RUN]).splitlines()
    link = "[2026-11-20-nvidia-h200](docs/hardware/2026-11-20-nvidia-h200.json)"
    assert table[2] == (
        "| a kernel writes to an illegal address → next good product, hot standby | "
        f"150 ms (135 to 165, 5 rounds) | {link} |"
    )
    assert "0.9 ms (0.81 to 0.99, 5 rounds)" in table[3]
    assert "45 µs; cuBLAS called directly 19 µs (2.37 times)" in table[4]
    assert "80,000 a second; eager torch 100,000 |" in table[5]
    assert table[6:] == ["", "* 2026-11-20-nvidia-h200: NVIDIA H200, driver 580.159, commit 0123456789."]


def test_the_newest_run_that_has_a_figure_gives_it(script: ModuleType, tmp_path: Path) -> None:
    newer = copy.deepcopy(RUN)
    newer["probe"] |= {"at": "2026-11-21T10:00:00Z", "dirty": True}
    newer["benchmarks"] = {"recovery": {"results": {"from the fault": {"hot, illegal": _spread(0.12)}}}}
    for name, run_ in (("a", RUN), ("b", newer)):
        (tmp_path / f"{name}.json").write_text(json.dumps(run_), "utf-8")
    table = script.figures(script.hardware_runs(tmp_path))
    assert "120 ms" in table
    assert "150 ms" not in table
    assert "[b](docs/hardware/b.json)" in table
    assert "[a](docs/hardware/a.json)" in table
    assert "with changes" in table


def test_what_was_run_on_the_cpu_has_rows_of_its_own(script: ModuleType, tmp_path: Path) -> None:
    """And gives no figure of a GPU, though the problems may have equal names."""
    where = {**RUN["probe"], "device": "some CPU", "driver": "", "cores": 2}
    solver = {
        "svd 512 f64": {"process": _spread(0.08), "direct": _spread(0.09)},
        "svd 1024 f32": {"process": _spread(1)},
    }
    (tmp_path / "day-cpu").mkdir()
    for name, backend in (("solver", "cpu"), ("fft", "cuda")):
        stored = {"benchmark": name, "environment": {**where, "backend": backend}, "results": solver}
        (tmp_path / "day-cpu" / f"{name}.json").write_text(json.dumps(stored), "utf-8")
    (tmp_path / "day-cpu" / "actors.json").write_text(json.dumps({"python": "3.11"}), "utf-8")
    row, *rest = script.figures(script.hardware_runs(tmp_path)).splitlines()[2:]
    assert row.startswith(
        "| on the CPU: singular values and vectors, 512×512 f64, process | 80,000 µs; NumPy or SciPy "
    )
    assert row.endswith(" directly 90,000 µs | [day-cpu/solver](docs/hardware/day-cpu/solver.json) |")
    assert rest == ["", "* day-cpu/solver: some CPU, 2 cores, commit 0123456789."]


def test_the_benchmarks_still_have_these_names(script: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """A renamed figure would leave the table without a word."""
    assert {figure.benchmark.removesuffix(", CPU") for figure in script.FIGURES} <= set(BENCHMARKS)
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    loads = importlib.import_module("ops")._loads("cuda", False, None)
    used = set(re.findall(r'"[\w ]+ \d+x\d+"', script.__loader__.get_source(None)))
    assert used
    assert used <= {f'"{load}"' for load in loads}


def test_markers_are_needed(script: ModuleType) -> None:
    with pytest.raises(ValueError, match="markers"):
        script.replaced("no markers", "figures")
