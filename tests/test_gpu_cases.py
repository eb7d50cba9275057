"""Cases for a GPU where there is none: left out, number and reason told; failures where one is required."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
CASES = "tests/cli/test_demo.py"

NO_GPU = """
from callboard.backends.cpu import CpuBackend
from callboard.core import registry
from callboard.core.errors import BackendUnavailable

class NoCuda(CpuBackend):
    name = "cuda"
    def devices(self):
        raise BackendUnavailable("no driver, as a test would have it")

registry.register("cuda", NoCuda())
"""


def run(folder: Path, *options: str, **variables: str) -> str:
    (folder / "no_gpu.py").write_text(NO_GPU)
    # Variables of pytest's are those of the run, or the xdist worker, that this is part of.
    environment = {k: v for k, v in os.environ.items() if k != "CALLBOARD_REQUIRE" and not k.startswith("PYTEST_")}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")]))
    environment |= {"PYTEST_PLUGINS": "no_gpu", **variables}  # inherited by workers
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", CASES, *options]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=50, check=False)
    return done.stdout + done.stderr


def left_out(told: str) -> int:
    found = re.search(r"^(\d+) cases for a GPU: no driver, as a test would have it$", told, re.MULTILINE)
    assert found is not None, told
    assert "skipped" not in told, told
    return int(found[1])


@pytest.mark.slow
def test_workers_tell_the_number_and_the_reason(tmp_path: Path) -> None:
    pytest.importorskip("xdist", reason="pytest-xdist is not installed")
    assert left_out(run(tmp_path, "-m", "gpu", "-n", "2")) == 3


@pytest.mark.slow
def test_what_was_not_chosen_is_not_counted(tmp_path: Path) -> None:
    assert left_out(run(tmp_path, "-m", "gpu and slow")) == 1


def test_they_fail_where_a_gpu_is_required(tmp_path: Path) -> None:
    told = run(tmp_path, "-m", "gpu", CALLBOARD_REQUIRE="cuda")
    assert "\nERROR tests/cli/test_demo.py" in told, told
    assert "no driver, as a test would have it" in told, told
    assert "cases for a GPU" not in told, told
