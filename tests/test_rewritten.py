"""Each test file is rewritten by one worker, and pytest takes what is written."""

import subprocess
import sys
from pathlib import Path

import pytest
from tests import rewritten


def test_every_file_is_in_one_share() -> None:
    files = [Path(f"test_{i}.py") for i in range(11)]
    shares = [rewritten.share(files, {"workerid": f"gw{i}", "workercount": 4}) for i in range(4)]
    assert sorted(path for share in shares for path in share) == sorted(files)
    assert {len(share) for share in shares} == {2, 3}


def test_pytest_reads_what_was_kept(tmp_path: Path, pytestconfig: pytest.Config) -> None:
    file = tmp_path / "test_x.py"
    file.write_text("def test_x():\n    number = 3\n    assert number == 4\n")
    rewritten.keep_rewritten(file, pytestconfig)
    (kept,) = tmp_path.rglob("*.pyc")
    written = kept.stat()
    rewritten.keep_rewritten(file, pytestconfig)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(file)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=50, check=False)
    assert "assert 3 == 4" in done.stdout, done.stdout + done.stderr
    assert (kept.stat().st_ino, kept.stat().st_mtime_ns) == (written.st_ino, written.st_mtime_ns)
