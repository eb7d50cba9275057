"""What both type checkers find in a program, for tests of the types that users see."""

import subprocess
import sys
from pathlib import Path

import pytest

__all__ = ["CHECKERS", "SOURCE", "judge"]

SOURCE = Path(__file__).parents[1] / "src"
CHECKERS = {
    "mypy": ["-m", "mypy", "--strict", "--no-error-summary", "--no-pretty", "--config-file="],
    "pyright": ["-m", "pyright", "--pythonpath", sys.executable],
}


def judge(checker: str, folder: Path, good: str, bad: str) -> None:
    """Check two programs in an empty folder, where the checker finds nothing else.

    Args:
        checker: One of :data:`CHECKERS`; the test is skipped if it is not installed.
        folder: For the programs.
        good: Must have no error.
        bad: Must have an error in each line that ends with ``# E``, and in no other.
    """
    pytest.importorskip(checker)
    (folder / "pyrightconfig.json").write_text(f'{{"extraPaths": ["{SOURCE}"]}}')
    (folder / "good.py").write_text(good)
    (folder / "bad.py").write_text(bad)
    assert _errors(checker, folder / "good.py") == {}
    lines = bad.splitlines()
    wanted = {number for number, line in enumerate(lines, 1) if line.endswith("# E")}
    got = _errors(checker, folder / "bad.py")
    assert set(got) == wanted, [got.get(n) or lines[n - 1] for n in set(got) ^ wanted]


def _errors(checker: str, path: Path) -> dict[int, str]:
    """The errors of a checker by line."""
    options = ["--cache-dir", str(path.parent / "cache")] if checker == "mypy" else []
    done = subprocess.run(
        [sys.executable, *CHECKERS[checker], *options, path.name],
        cwd=path.parent,
        env={"PATH": "/usr/bin:/bin", "HOME": str(Path.home()), "MYPYPATH": str(SOURCE), "PYTHONPATH": str(SOURCE)},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    errors: dict[int, str] = {}
    for line in done.stdout.splitlines():
        if path.name in line and "error" in line:
            number = line.partition(path.name + ":")[2].partition(":")[0]
            errors[int(number)] = line
    return errors
