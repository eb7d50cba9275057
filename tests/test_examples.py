"""Every example runs as a user would run it, on the CPU, and says something; the table in its README names all."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
EXAMPLES = sorted((ROOT / "examples").glob("[!_]*.py"))  # the others are what examples share
LIMIT = 40.0
MOST_LINES = 60


def test_there_are_examples() -> None:
    assert EXAMPLES


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_runs(path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run(
        [sys.executable, "-W", "error", str(path), "cpu"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_is_short_and_explained(path: Path) -> None:
    text = path.read_text("utf-8")
    assert text.startswith('"""')
    assert text.count("\n") <= MOST_LINES


def test_readme_lists_them() -> None:
    table = (ROOT / "examples" / "README.md").read_text("utf-8")
    assert sorted(re.findall(r"^\| \[(\w+\.py)\]", table, re.MULTILINE)) == [path.name for path in EXAMPLES]
