"""``callboard trace``: what it tells of programs that end, are ended, and crash."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.telemetry.packets import Trace

LIMIT = 60.0
SOURCE = Path(__file__).parents[2] / "src"

PROGRAM = """
import asyncio, os, signal, sys, callboard as cb, numpy as np

async def main(end):
    async with cb.device("cpu") as gpu:
        a = gpu.put(np.ones((8, 8), np.float32))
        for _ in range(20):
            await gpu.blas.gemm(a, a)
        for _ in range({"wait": 200, "term": 200, "kill": 800}.get(end, 0)):  # nothing is written at a kill
            await gpu.blas.gemm(a, a)
            await asyncio.sleep(0.005)  # so that a drain falls into it
        if end == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if end == "term":
            os.kill(os.getppid(), signal.SIGTERM)
            await asyncio.sleep(600)
        if end == "wait":
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, asyncio.current_task().cancel)
            os.kill(os.getppid(), signal.SIGTERM)
            try:
                await asyncio.sleep(600)
            except asyncio.CancelledError:
                pass
    raise SystemExit(3)

asyncio.run(main(sys.argv[1]))
"""


def traced(folder: Path, program: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run ``callboard trace`` with a program; the trace is in ``t.pftrace``."""
    (folder / "app.py").write_text(program, "utf-8")
    command = [sys.executable, "-m", "callboard", "trace", "-o", "t.pftrace", "--", sys.executable, "app.py"]
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    return subprocess.run(
        [*command, *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )


def gemms(done: "subprocess.CompletedProcess[str]") -> int:
    """Calls of the product in the table."""
    [row] = [line for line in done.stderr.splitlines() if line.startswith("blas.gemm")]
    return int(row.split()[1])


def test_a_traced_program(tmp_path: Path) -> None:
    done = traced(tmp_path, PROGRAM, "exit")
    assert done.returncode == 3, done.stderr
    assert gemms(done) == 20
    assert "t.pftrace: open it at" in done.stderr
    trace = Trace((tmp_path / "t.pftrace").read_bytes())
    assert len([each for each in trace.slices if each.name == "blas.gemm" and each.track == "blas"]) == 20


@pytest.mark.skipif(os.name == "nt", reason="signals")
@pytest.mark.parametrize("end, code", [("kill", 128 + signal.SIGKILL), ("term", 128 + signal.SIGTERM), ("wait", 3)])
@pytest.mark.few(3)
def test_a_program_that_is_ended_leaves_what_was_recorded(tmp_path: Path, end: str, code: int) -> None:
    done = traced(tmp_path, PROGRAM, end)
    assert done.returncode == code, done.stderr
    assert "nothing was recorded" not in done.stderr
    assert gemms(done) >= (220 if end == "wait" else 20)
    assert ("t.pftrace: incomplete" in done.stderr) == (end != "wait")
    assert Trace((tmp_path / "t.pftrace").read_bytes()).slices


@pytest.mark.slow
@pytest.mark.parametrize(
    "program, code, says",
    [
        ("pass", 1, "the program has started no callboard system"),
        (
            "import asyncio, callboard as cb\nasync def f():\n async with cb.System(): pass\nasyncio.run(f())",
            0,
            "no ops",
        ),
    ],
)
def test_a_program_without_ops(tmp_path: Path, program: str, code: int, says: str) -> None:
    done = traced(tmp_path, program)
    assert done.returncode == code, done.stderr
    assert says in done.stderr
    assert "total ms" not in done.stderr
