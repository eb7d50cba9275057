"""The sections of a check: each runs programs of the source tree in processes of their own, within a time."""

import contextlib
import importlib.metadata
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gpu_check.groups import ROOT
from gpu_check.sanitizer import sanitizer_section

__all__ = [
    "BENCHMARKS",
    "CARDS",
    "FILE",
    "FOLDERS",
    "TESTS",
    "NoDevice",
    "benchmark_section",
    "cards_of",
    "memory_of",
    "probe",
    "sanitized",
    "test_section",
    "too_large",
]

TESTS = {
    "conformance": "gpu and not fault and not slow",
    "faults": "gpu and fault and not slow",
    "slow": "gpu and slow",
}
"""Sections of tests, and the marks that choose them."""

FILE, CARDS = "CALLBOARD_GPU_REPORT", "CALLBOARD_GPU_CARDS"
"""Where the tests write what they found; the UUIDs of the GPUs over which pytest-xdist's workers are spread."""

BENCHMARKS: dict[str, list[str]] = {
    "ops": ["ops.py"],
    "recovery": ["recovery.py", "--hold", "1"],
    "recovery, 100 GiB held": ["recovery.py", "--hold", "100", "--fault", "illegal", "--standby", "warm"],
    "losses": ["losses.py", "--standbys", "1", "2", "5", "--rounds", "3"],
    "poisoned": ["poisoned.py", "--torch", "--standby", "2", "--peers"],
    "copies": ["copies.py"],
    "idle": ["idle.py", "--full", "--seconds", "5"],
    "blas_lt": ["blas_lt.py"],
    "graphs": ["graphs.py"],
    "arrays": ["arrays.py"],
    "cub": ["cub.py", "--rounds", "3"],
    "attention": ["attention.py", "--rounds", "5"],
    "dnn": ["dnn.py", "--rounds", "3"],
    "encoder": ["encoder.py", "--rounds", "5"],
    "fft": ["fft.py"],
    "rng": ["rng.py"],
    "rnn": ["rnn.py", "--rounds", "3"],
    "solver": ["solver.py"],
    "sparse": ["sparse.py"],
    "sparse_lt": ["sparse_lt.py"],
    "elementwise": ["elementwise.py", "--rounds", "3"],
    "tensor": ["tensor.py", "--rounds", "3"],
    "demo": ["demo.py", "--rounds", "2"],
    "pipeline": ["pipeline.py"],
    "resident": ["resident.py", "--rounds", "4"],
}

SPARE_GIB = 8.0
"""Memory of a card beside what a benchmark holds: two contexts, their libraries' workspaces."""

DOCTOR_TIME = 60.0
GRACE = 5.0
"""Seconds between asking a program that takes too long to end, and ending it."""


FOLDERS = ("benchmarks", "scripts", "src", "tests", "tools")
"""What a check runs."""


class NoDevice(RuntimeError):
    """The device that is to be checked is not there; names the reason."""


def probe(device: str, commit: str | None, tree: str | None = None) -> dict[str, Any]:
    """What is checked, where: commit, versions, driver, what the doctor finds.

    Args:
        device: Its spec.
        commit: What is checked; that of the git folder when None.
        tree: git's hash of the :data:`FOLDERS` of that commit: says whether those here are the same. Without it the
            git folder says so, if it is at that commit.
    """
    doctor = [sys.executable, "-m", "callboard", "doctor", "--json"]
    done = subprocess.run(
        doctor, cwd=ROOT, env=_environment(), capture_output=True, text=True, timeout=DOCTOR_TIME, check=False
    )
    if done.returncode:
        raise RuntimeError(f"callboard doctor failed:\n{done.stderr}")
    found = json.loads(done.stdout)
    found["platform"].pop("executable", None)  # a path of that machine says nothing elsewhere
    backend = device.partition(":")[0]
    devices = [d for b in found["backends"] if b["name"] == backend for d in b.get("devices", [])]
    if not devices:
        why = next((b["error"] for b in found["backends"] if b["name"] == backend and b.get("error")), "none is listed")
        raise NoDevice(
            f"no device of {backend!r} can be used here: {why}; `callboard doctor` says more, and scripts/test runs "
            "the tests that need no GPU"
        )
    head = _git("rev-parse", "HEAD")
    return {
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "commit": commit or head,
        "dirty": _differs(head, commit, tree),
        "backend": backend,
        "device": devices[0]["detail"].partition(",")[0],
        "driver": found["driver"].get("detail", ""),
        "cores": os.cpu_count(),
        "packages": {name: version for name, version in found["packages"].items() if version},
        "doctor": found,
    }


def cards_of(found: dict[str, Any], device: str) -> list[str]:
    """The UUIDs of the GPUs that a probe has found."""
    backends = [b for b in found["doctor"]["backends"] if b["name"] == device.partition(":")[0]]
    return [card["uuid"] for backend in backends for card in backend["devices"]]


def test_section(
    name: str, seconds: float, workers: int, selected: list[str], cards: list[str]
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Run the tests of a section on CUDA.

    Args:
        name: Of the section, of :data:`TESTS`.
        seconds: It may take.
        workers: Of pytest-xdist, where it is installed. Even one is worth having: a test that takes its process along
            (a segmentation fault, the timeout) then ends a worker, and the next worker goes on.
        selected: Files and folders, relative to the root; all tests when empty.
        cards: The GPUs to spread the workers over, each to one.

    Returns:
        The lines that the tests left, and how the run ended.
    """
    with tempfile.TemporaryDirectory(prefix="callboard-gpu-") as folder:
        report = Path(folder) / "report.jsonl"
        command = [sys.executable, "-m", "pytest", "-q", "-m", TESTS[name], "-p", "no:benchmark"]
        command += [*_pytest_options(), *(selected or ["tests"])]  # a named path: with the repeats on other sessions
        if workers and importlib.util.find_spec("xdist") is not None:
            command += ["-n", str(workers)]
        environment = _environment(CALLBOARD_REQUIRE="cuda", CI="true", **{FILE: str(report), CARDS: ",".join(cards)})
        ended = _run(command, seconds, environment)
        lines = report.read_text("utf-8").splitlines() if report.exists() else []
    return [json.loads(line) for line in lines], ended


def memory_of(found: dict[str, Any], device: str) -> float | None:
    """GiB of the device that a probe has found; None if the doctor could not open it."""
    backend, _, index = device.partition(":")
    name = f"{backend}:{index or 0}"
    details = [d["detail"] for b in found["doctor"]["backends"] for d in b.get("devices", []) if d["name"] == name]
    told = re.search(r"of ([0-9.]+) GiB free", details[0]) if details else None
    return None if told is None else float(told[1])


def too_large(command: list[str], memory: float | None) -> str | None:
    """Why a benchmark does not fit a device with so many GiB; None if it does, or the memory is unknown."""
    held = float(command[command.index("--hold") + 1]) if "--hold" in command else 0.0
    if memory is None or held + SPARE_GIB <= memory:
        return None
    return f"left out: it holds {held:g} GiB and needs {SPARE_GIB:g} GiB more; the device has {memory:g} GiB"


def benchmark_section(
    device: str, seconds: float, quick: bool, only: list[str], memory: float | None = None
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Run the benchmarks; gives the name of each and what it stored, which is a part if its time was too short.

    One may take half of the time that is left, the last all of it: so none leaves the others without. Of one that does
    not fit the device's ``memory`` (GiB), it gives the reason as ``left_out``.
    """
    chosen = {n: c for n, c in BENCHMARKS.items() if not only or c[0].removesuffix(".py") in only}
    left_out = {n: why for n, c in chosen.items() if device.startswith("cuda") and (why := too_large(c, memory))}
    for name, why in left_out.items():
        yield name, {"left_out": why, "ended": {"timed_out": False, "seconds": 0.0, "code": 0}}
    wanted = {n: c for n, c in chosen.items() if n not in left_out}
    deadline = time.monotonic() + seconds
    for i, (name, command) in enumerate(wanted.items(), 1):
        left = deadline - time.monotonic()
        if left <= 0:
            yield name, {"ended": {"timed_out": True, "seconds": 0.0, "code": None}}
            continue
        with tempfile.TemporaryDirectory(prefix="callboard-gpu-") as folder:
            out = Path(folder) / "result.json"
            program = [sys.executable, f"benchmarks/{command[0]}", "--device", device, "--json", str(out), *command[1:]]
            if quick and "--quick" not in program:
                program.append("--quick")
            ended = _run(program, left if i == len(wanted) else left / 2, _environment())
            found = json.loads(out.read_text("utf-8")) if out.exists() else {}
        yield name, {**found, "ended": ended}


def sanitized(seconds: float) -> Iterator[tuple[str, dict[str, Any]]]:
    """Run the suites of our own kernels under ``compute-sanitizer``; gives each tool's name and what it found."""
    environment = _environment(CALLBOARD_REQUIRE="cuda", **{FILE: os.devnull})  # the log of the tool is what counts
    yield from sanitizer_section(seconds, _pytest_options(), _run, environment, ROOT)


def _pytest_options() -> list[str]:
    """What a run from a source tree on a bare machine needs beside the ini file."""
    options = ["-p", "gpu_check.pytest_report", "-p", "gpu_check.asyncio_runner"]
    if not any(point.name == "callboard" for point in importlib.metadata.entry_points(group="pytest11")):
        options += ["-p", "callboard.testing.plugin"]
    if int(importlib.metadata.version("pytest").split(".")[0]) < 9:
        options += ["-o", "minversion=7.0"]
    if importlib.util.find_spec("pytest_timeout") is None:
        # the ini file's settings of pytest-timeout would be refused as unknown
        options += ["-o", "addopts=--import-mode=importlib", "-W", "ignore::pytest.PytestConfigWarning"]
    return options


def _run(command: list[str], seconds: float, environment: dict[str, str]) -> dict[str, Any]:
    """Run a program in a session of its own; end all of it when its time is over."""
    started = time.monotonic()
    process = subprocess.Popen(command, cwd=ROOT, env=environment, start_new_session=True)
    timed_out = False
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        timed_out = True
        process.terminate()  # what it started is its own to end, within GRACE
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(GRACE)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    return {"code": process.returncode, "seconds": round(time.monotonic() - started, 2), "timed_out": timed_out}


def _environment(**more: str) -> dict[str, str]:
    path = os.pathsep.join(filter(None, [str(ROOT / "src"), str(ROOT / "tools"), os.environ.get("PYTHONPATH")]))
    # an xdist worker's own variables would make the run believe that it is one
    mine = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    return {**mine, "PYTHONPATH": path, **more}


def _differs(head: str | None, commit: str | None, tree: str | None) -> bool | None:
    """Whether what lies here is something else than the commit; None if nothing here can tell."""
    if tree is not None:
        found = _tree()
        return None if found is None else found != tree
    if head is None or not head.startswith(commit or head):
        return None
    return bool(_git("status", "--porcelain", "--untracked-files=no"))


def _tree() -> str | None:
    """Git's hash of the folders as they lie here; no matter at which commit its own folder is."""
    with tempfile.TemporaryDirectory(prefix="callboard-tree-") as folder:
        index = {"GIT_INDEX_FILE": str(Path(folder) / "index")}
        if _git("add", "--all", *FOLDERS, **index) is None:
            return None
        return _git("write-tree", **index)


def _git(*command: str, **environment: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", *command],
            cwd=ROOT,
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()
