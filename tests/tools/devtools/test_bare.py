"""Programs of ``scripts/`` that are started with a Python without the packages."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.mark.few(4)
@pytest.mark.parametrize("name", ["coverage-page", "gpu-check", "readme-figures", "xp-stub", "np-stub"])
def test_a_bare_python_says_in_one_line_what_to_do(name: str, tmp_path: Path) -> None:
    script = ROOT / "scripts" / name
    done = subprocess.run(
        [sys.executable, "-I", "-S", script], capture_output=True, text=True, cwd=tmp_path, timeout=50, check=False
    )  # -S: without the packages of the environment
    assert (done.returncode, done.stdout) == (2, "")
    line = rf"scripts/{name}: .* has no package \w+; run python3 -m venv .*, then .venv/bin/python scripts/{name}\n"
    assert re.fullmatch(line, done.stderr)


def test_an_older_python_can_read_what_says_so() -> None:
    for path in (ROOT / "scripts" / "gpu-check", ROOT / "tools" / "devtools" / "bare.py"):
        ast.parse(path.read_text("utf-8"), feature_version=(3, 6))
