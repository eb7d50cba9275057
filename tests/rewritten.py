"""In a fresh clone, assertions are rewritten once: each worker of xdist begins with its share of the test files.

All workers import all of them, at the same time: each would rewrite all, which takes half a minute, and the others find
the result too late.
"""

import sys
from pathlib import Path
from typing import Any

import pytest
from _pytest.assertion import rewrite  # there is no public way
from tests import thorough


def share(files: list[Path], worker: dict[str, Any]) -> list[Path]:
    """Every file is in the share of one worker."""
    return files[int(worker["workerid"].removeprefix("gw")) :: worker["workercount"]]


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    worker: dict[str, Any] | None = getattr(session.config, "workerinput", None)
    if worker is None or sys.dont_write_bytecode or not thorough.is_plain(session.config):
        return
    for file in share(sorted((session.config.rootpath / "tests").rglob("test_*.py")), worker):
        keep_rewritten(file, session.config)


def keep_rewritten(file: Path, config: pytest.Config) -> None:
    """Write what pytest reads where a test module is imported, unless it is there."""
    folder = rewrite.get_cache_dir(file)
    kept = folder / (file.stem + rewrite.PYC_TAIL)
    if rewrite._read_pyc(file, kept) is None and rewrite.try_makedirs(folder):
        status, code = rewrite._rewrite_test(file, config)
        rewrite._write_pyc(config.stash[rewrite.assertstate_key], code, status, kept)
