"""Work that cannot be ended: its memory stays until it ends, and the application goes on and ends without it."""

import signal
import sys
from pathlib import Path

import pytest
from tests.faults.left_behind import WAYS
from tests.faults.programs import Program

pytestmark = [pytest.mark.fault, pytest.mark.timeout(120)]

BOUND = 20.0
"""Seconds in which a device is left whose op runs on: 2 on a machine that does nothing else."""

SCRIPT = str(Path(__file__).parent / "left_behind.py")


@pytest.mark.few(2)
@pytest.mark.parametrize("way", WAYS)
def test_memory_outlives_the_work_that_was_left_behind(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CALLBOARD_CPU_DEVICES", "2")
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    with Program(SCRIPT, way) as program:
        seconds = float(program.line("seconds"))
        copied, untouched, threads = program.line("copied"), program.line("untouched"), program.line("threads")
        assert program.end() == 0
    assert seconds < BOUND
    assert (copied, untouched, threads) == ("[True]", "True", "[]")


LONG_OP = """
import asyncio, os, signal, sys, threading, time
import numpy as np
import callboard as cb

signal.signal(signal.SIGINT, signal.default_int_handler)
small = np.ones((1000, 1000), "f4")
small @ small
began = time.perf_counter()
small @ small
n = int(1000 * (6.0 / (time.perf_counter() - began)) ** (1 / 3))  # a product of some seconds: its op is left behind
n = min(n, 12000)

async def main():
    async with cb.device("cpu", isolation="thread", close_timeout=0.05) as dev:
        a = await dev.xp.ones((n, n), dtype="f4")
        product = dev.blas.gemm(a, a)
        while not dev.health().host_pid or not (await dev.stats()).in_flight:
            pass
        print("begun", flush=True)
        LEAVE

HOW
"""

LEAVES = {
    "an exception that is caught": ("raise KeyError", "try:\n    asyncio.run(main())\nexcept KeyError:\n    pass", 0),
    "a status": ("sys.exit(7)", "asyncio.run(main())", 7),
    "Ctrl-C": (
        "os.kill(os.getpid(), signal.SIGINT); await product",
        "asyncio.run(main())",
        -signal.SIGINT,
    ),
    "Ctrl-C that is caught": (
        "os.kill(os.getpid(), signal.SIGINT); await product",
        "try:\n    asyncio.run(main())\nexcept KeyboardInterrupt:\n    sys.exit(130)",
        130,
    ),
}


@pytest.mark.few(1)
@pytest.mark.skipif(sys.platform != "linux", reason="another exit of the C library")
@pytest.mark.parametrize("how", LEAVES)
def test_the_process_ends_while_an_op_runs_on(how: str) -> None:
    """OpenBLAS's destructor would wait for ever, or take the memory from the thread that computes."""
    leave, run, status = LEAVES[how]
    with Program("-c", LONG_OP.replace("LEAVE", leave).replace("HOW", run)) as program:
        program.line("begun")
        assert program.end() == status


STATUS = """
import sys, threading
from callboard.device import leftthreads

threading.Thread(target=threading.Event().wait, daemon=True).start()
leftthreads.watch(threading.enumerate()[-1])
print("text that is still in a buffer", end="")
sys.exit(5)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="another exit of the C library")
def test_the_status_and_the_output_are_those_of_an_ordinary_end() -> None:
    with Program("-c", STATUS) as program:
        assert program.end() == 5
        assert "text that is still in a buffer" in program.output


FOURIER = """
import sys, threading
import numpy as np
import scipy.fft
from callboard.device import leftthreads

begun = threading.Event()

def transform():
    a = np.ones(1 << 20, "c16")
    while True:
        scipy.fft.fft(a)
        begun.set()

for _ in range(3):
    thread = threading.Thread(target=transform, daemon=True)
    thread.start()
    leftthreads.watch(thread)
begun.wait()
sys.exit(5)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="another C++")
def test_work_in_cpp_that_ends_while_the_interpreter_does() -> None:
    """Its destructors take the GIL."""
    with Program("-c", FOURIER) as program:
        assert program.end() == 5
