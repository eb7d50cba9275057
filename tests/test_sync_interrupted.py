"""Ctrl-C twice while one op runs in a child process, or once with ``cancelled_after``, ends the op."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import callboard as cb
from callboard.device.client.interrupting import Interrupts

BOUND = 100.0
"""Seconds for a program that waits for an SVD of half a minute or more, unless that is ended."""


@pytest.mark.timeout(BOUND + 20.0)
@pytest.mark.parametrize("after", [None, "0.1"])
def test_the_second_one_ends_the_op_or_the_first_with_cancelled_after(after: str | None) -> None:
    root = Path(__file__).parents[1]
    path = os.pathsep.join([str(Path(cb.__file__).parents[1]), str(root)])
    program = subprocess.Popen(
        [sys.executable, "-u", str(root / "tests/sync_interrupted.py"), *([after] if after else [])],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert program.stdout is not None
    said = []
    try:
        for line in program.stdout:
            said.append(line.rstrip("\n"))
            if said[-1] == "waits":
                program.send_signal(signal.SIGINT)
        program.wait(BOUND)
    finally:
        program.kill()
        program.communicate()
    presses, by = (1, "cancellation (cancelled_after)") if after else (2, "second Ctrl-C")
    assert said[:-4] == ["waits", "left"] * presses
    assert said[-4].startswith(f"cpu:0: the op that runs was ended by a {by}")
    assert said[-3:] == ["stale", "next 8.0", "losses 1"]
    assert program.returncode == 0


def test_ops_of_the_first_one_are_ended_by_the_second() -> None:
    replaced: list[int] = []
    flying: list[int] = []
    interrupts = Interrupts(lambda: flying, lambda: replaced.append(1))

    def press(*ops: int) -> int:
        flying[:] = ops
        interrupts.pressed()
        return len(replaced)

    assert [press(3, 4), press(5), press(5, 6)] == [0, 0, 1]  # the ops of the first time are done at the second
    assert [press(7), press(), press(7)] == [1, 1, 1]
