"""The guard of the processes that actors start: it is started once, and a failure of it is logged."""

import contextlib
import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from callboard.device.host import offspring, processgroup

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="process isolation is Linux only"),
    pytest.mark.timeout(60),
]
BOUND = 20.0

LEADER = """
import subprocess, sys
from callboard.device.host import offspring
offspring.end_with(int(sys.argv[1]))
offspring.guard()
offspring.guard()
print("guarded", flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def ended_process() -> Iterator[int]:
    """A pidfd of a process that has ended."""
    with subprocess.Popen(["true"]) as process:
        pidfd = os.pidfd_open(process.pid)
    yield pidfd
    os.close(pidfd)


def test_it_ends_the_group_where_the_process_has_ended_before_it_waits() -> None:
    with (
        ended_process() as pidfd,
        subprocess.Popen(
            [sys.executable, "-c", LEADER, str(pidfd)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=(pidfd,),
            start_new_session=True,
        ) as leader,
    ):
        try:
            assert leader.wait(BOUND) == -signal.SIGTERM
        finally:
            leader.kill()


@pytest.fixture
def pidfd() -> Iterator[int]:
    """Of this process, which must not lose its group: no guard comes to wait for it in these tests."""
    descriptor = os.pidfd_open(os.getpid())
    yield descriptor
    os.close(descriptor)


def wait_for_guards() -> None:
    for thread in threading.enumerate():
        if thread.name == "callboard-guard":
            thread.join(BOUND)
            assert not thread.is_alive()


@pytest.mark.parametrize("failure", ["not started", "cannot wait"])
def test_one_that_cannot_guard_is_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path, pidfd: int, failure: str
) -> None:
    program = tmp_path / "program.py"
    program.write_text("raise SystemExit(3)")
    monkeypatch.setattr(processgroup, "__file__", str(program))
    if failure == "not started":
        monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    offspring.end_with(pidfd)
    with caplog.at_level(logging.WARNING, offspring.__name__):
        offspring.guard()
        offspring.guard()
        wait_for_guards()
    (record,) = caplog.records
    assert "will outlive" in record.getMessage()
    assert ("exit code 3" if failure == "cannot wait" else "No such file") in record.getMessage()


def test_a_host_that_is_no_process_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("a process was started")

    monkeypatch.setattr(subprocess, "Popen", refuse)
    offspring.guard()


def test_the_program_needs_no_package() -> None:
    """It is run without site-packages, by path."""
    told = subprocess.run(
        [sys.executable, "-I", "-S", processgroup.__file__], capture_output=True, text=True, timeout=BOUND, check=False
    )
    assert told.returncode == 0
    assert "IndexError" in told.stderr  # of the one that would wait, which was not told for what
