"""Whether a process does something: one that computes, one that waits, also with the GIL, one that is stopped."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from callboard.device.supervision.hosts.activity import Activity

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="of Linux's /proc")

LOOKS = 3

COMPUTES = "print(1, flush=True)\nwhile True: pass"

WAITS = "import sys; print(1, flush=True); sys.stdin.read()"

KEEPS_THE_GIL = """
import ctypes, threading, time
def run():
    while True:
        time.sleep(0.0)
thread = threading.Thread(target=run, daemon=True)
thread.start()
print(thread.native_id, flush=True)
ctypes.PyDLL(None).pause()
"""

Start = Callable[[str], tuple["subprocess.Popen[bytes]", int]]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts a program; returns it, and the number that it prints when it is at its work."""
    started: list[subprocess.Popen[bytes]] = []

    def start(program: str) -> tuple["subprocess.Popen[bytes]", int]:
        child = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        started.append(child)
        assert child.stdout is not None
        return child, int(child.stdout.readline())

    yield start
    for child in started:
        child.kill()
        child.communicate()


def state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def until(condition: Callable[[], bool]) -> None:
    while not condition():
        os.sched_yield()


def test_one_that_computes_goes_on(start: Start) -> None:
    activity = Activity(start(COMPUTES)[0].pid)
    assert all(activity.goes_on() for _ in range(LOOKS))


def test_one_that_waits_does_not(start: Start) -> None:
    pid = start(WAITS)[0].pid
    until(lambda: state(pid) == "S")
    activity = Activity(pid)
    activity.goes_on()
    assert not any(activity.goes_on() for _ in range(LOOKS))


def test_one_that_is_stopped_does_not(start: Start) -> None:
    pid = start(COMPUTES)[0].pid
    os.kill(pid, signal.SIGSTOP)
    until(lambda: state(pid) == "T")
    activity = Activity(pid)
    activity.goes_on()
    assert not any(activity.goes_on() for _ in range(LOOKS))


def test_one_that_waits_with_the_gil_does_not_whatever_threads_wait_for_that(start: Start) -> None:
    child, waiting = start(KEEPS_THE_GIL)
    every, others = Activity(child.pid), Activity(child.pid)
    others.idle = [waiting]
    until(lambda: not others.goes_on())  # it has come to its wait
    for _ in range(LOOKS):
        until(every.goes_on)  # the thread that waits for the GIL wakes up again and again
        assert not others.goes_on()


def test_one_that_has_ended_does_not(start: Start) -> None:
    child, _ = start(WAITS)
    child.communicate()
    assert not Activity(child.pid).goes_on()
