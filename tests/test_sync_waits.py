"""Ctrl-C ends every wait of ``cb.sync`` soon, and the program after it; the program is ``sync_waits.py``."""

import inspect
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.sync_waits import ENDINGS, WAITS

import callboard as cb

BOUND = 100.0
"""Seconds for a program whose waits take two minutes or more each, on a machine that is busy."""

pytestmark = pytest.mark.timeout(BOUND + 20.0)


@contextmanager
def waiting(what: str) -> Iterator["subprocess.Popen[str]"]:
    """The program; killed if it does not end in time."""
    root = Path(__file__).parents[1]
    path = os.pathsep.join([str(Path(cb.__file__).parents[1]), str(root)])
    program = subprocess.Popen(
        [sys.executable, "-u", str(root / "tests/sync_waits.py"), what],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    )
    late = threading.Timer(BOUND, program.kill)
    late.start()
    try:
        yield program
    finally:
        late.cancel()
        program.kill()
        program.communicate()


def test_every_wait_is_left_and_the_program_goes_on() -> None:
    with waiting("waits") as program:
        assert program.stdout is not None
        left = []
        for line in program.stdout:
            if line == "waits\n":
                program.send_signal(signal.SIGINT)
            elif line != "hurries\n":
                left.append(line.rstrip("\n"))
        out, err = program.communicate()
        assert (left, out, err) == ([f"left {name}" for name in WAITS], "", "")
        assert program.returncode == 0


@pytest.mark.few(8)
@pytest.mark.parametrize("presses", [1, 2])
@pytest.mark.parametrize("what", ENDINGS)
def test_a_program_ends_soon_while_it_ends_something(what: str, presses: int) -> None:
    """The second Ctrl-C comes while the first one's ending hurries."""
    with waiting(what) as program:
        assert program.stdout is not None
        said = []
        for line in program.stdout:
            said.append(line.rstrip("\n"))
            if line == "waits\n" and said.count("waits") == 1:
                program.send_signal(signal.SIGINT)
            if line == "hurries\n" and presses == 2 and said.count("hurries") == 1:
                program.send_signal(signal.SIGINT)
        _, err = program.communicate()
        assert program.returncode != -signal.SIGKILL, (said, err)
        if "exit" not in what and presses == 1:
            assert program.returncode == 7, (said, err)
            assert err == ""


ELSEWHERE = {
    "Device.close": "test_a_program_ends_soon_while_it_ends_something",
    "Device.host_empty": "waits as Device.put",
    "Device.ready": "waits as Device.wait_generation",
    "Device.standby_ready": "waits as Device.wait_generation",
    "ResidentRef.stop": "test_a_program_ends_soon_while_it_ends_something",
    "System.close": "test_a_program_ends_soon_while_it_ends_something",
    "System.device": "waits as Device.wait_generation",
    "PinnedBufferPool.close": "does nothing that waits",
    "PinnedBufferPool.stats": "does nothing that waits",
    "PinnedBufferPool.trim": "does nothing that waits",
    "Quarantine.close": "test_a_program_ends_soon_while_it_ends_something",
    "Quarantine.pardon": "does nothing that waits",
    "Quarantine.stats": "does nothing that waits",
    "Stream.with_prefetch": "does not wait",
    "ResidentRef.with_timeout": "does not wait",
    "Device.per_generation": "does not wait",
    "Device.pinned_pool": "does not wait",
    "Device.resolve": "does not wait",
    "Device.health": "does not wait",
}
"""Public methods that are in no row of the table, with the reason."""


def test_the_table_has_every_method_that_waits() -> None:
    rows = {name.partition(",")[0] for name in WAITS}
    classes = cb.sync.Device, cb.sync.System, cb.sync.ResidentRef, cb.sync.Stream, cb.sync.PinnedBufferPool
    for cls in (*classes, cb.sync.Quarantine):
        bases = [base for base in cls.__mro__ if base.__module__.startswith("callboard._blocking")]  # by hand
        methods = {n for base in bases for n, f in vars(base).items() if inspect.isfunction(f)}
        own = {f"{cls.__name__}.{n}" for n in methods if not n.startswith("_")}
        assert own <= rows | ELSEWHERE.keys(), own - rows - ELSEWHERE.keys()
