"""``compute-sanitizer`` over the suites that run callboard's own kernels: the section that is run when asked for."""

import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

__all__ = ["SECTION", "SUITES", "TOOLS", "findings", "sanitizer_section"]

SECTION = "sanitizer"
TOOLS = ("memcheck", "initcheck")
"""Out-of-bounds and misaligned accesses, leaks; reads of device memory that nothing has written. Not ``racecheck``: it
reports cuSPARSE's own csrmv kernel."""
SUITES = {
    "memcheck": (
        "memory",
        "sparse",
        "tensor",
        "blas_batched",
        "fft_callback",
        "rng",
        "event",
        "elementwise",
        "cub",
        "array",
        "attention",
        "dnn",
    ),
    "initcheck": ("memory", "sparse", "tensor"),
}
"""Beginnings of the names of the conformance suites; the others run vendors' kernels. ``initcheck`` is slower, and
takes what a vendor's kernel reads of its own workspace for an error."""
FAILED = 97
"""Exit code of a run with findings."""

_SUMMARY = re.compile(r"ERROR SUMMARY: (\d+) error")
_WHAT = re.compile(r"^=+ (?!COMPUTE-SANITIZER|ERROR SUMMARY|LEAK SUMMARY)(\S.*)$")
_WHERE = re.compile(r"^=+ +at (.+?)(?:\+0x[0-9a-f]+)?(?: in .*)?$")

Run = Callable[[list[str], float, dict[str, str]], dict[str, Any]]


def sanitizer_section(
    seconds: float, options: list[str], run: Run, environment: Mapping[str, str], root: Path
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Run the suites under each tool, in one process each; gives its name and what it found.

    Args:
        seconds: For all of them: each may take an equal part of what is left.
        options: Of pytest.
        run: Runs a program within a time: ``(command, seconds, environment)``.
        environment: Of the program.
        root: Of the repository.

    Raises:
        RuntimeError: ``compute-sanitizer`` is not installed.
    """
    program = shutil.which("compute-sanitizer") or shutil.which("compute-sanitizer", path="/usr/local/cuda/bin")
    if program is None:
        raise RuntimeError("compute-sanitizer is not installed; it comes with the CUDA toolkit (cuda-sanitizer)")
    deadline = time.monotonic() + seconds
    for i, tool in enumerate(TOOLS):
        left = (deadline - time.monotonic()) / (len(TOOLS) - i)
        with tempfile.TemporaryDirectory(prefix="callboard-sanitizer-") as folder:
            log = Path(folder) / "log"
            command = [program, "--tool", tool, "--log-file", str(log), "--error-exitcode", str(FAILED)]
            if tool == "memcheck":
                command += ["--report-api-errors", "no"]  # callboard asks the driver what it can do, and handles "no"
            command += [sys.executable, "-m", "pytest", "-q", "-m", "gpu and not fault", "-k", "library-cuda"]
            command += [*options, *_suites(tool, root)]
            ended = run(command, max(left, 1.0), {**environment, "CUDA_LAUNCH_BLOCKING": "0"})
            text = log.read_text("utf-8", "replace") if log.exists() else ""
        yield tool, {"ended": ended, **findings(text)}


def findings(log: str) -> dict[str, Any]:
    """What a log of ``compute-sanitizer`` says: the number of errors, and how often each kind was found where.

    Returns:
        ``errors``: their number, None where the log ends before its summary; ``found``: counts by what and where.
    """
    counts: dict[str, int] = {}
    what: str | None = None
    for line in log.splitlines():
        where = _WHERE.match(line)
        if where is not None and what is not None:
            key = f"{what} at {where[1]}"
            counts[key] = counts.get(key, 0) + 1
            what = None
        elif (header := _WHAT.match(line)) is not None:
            what = header[1]
    summary = _SUMMARY.search(log)
    return {"errors": None if summary is None else int(summary[1]), "found": counts}


def _suites(tool: str, root: Path) -> list[str]:
    files = sorted((root / "tests" / "conformance").glob("test_*.py"))
    named = tuple(f"test_{name}" for name in SUITES[tool])
    return [os.fspath(file.relative_to(root)) for file in files if file.name.startswith(named)]
