"""The number of threads of products follows the load of the cores, in hosts in processes of their own."""

import itertools
import os
import subprocess
import sys
from typing import Any

import pytest

import callboard as cb
from callboard.backends.cpu import blasthreads
from callboard.backends.cpu.blasthreads import LONGEST, SETTINGS, SHORTEST, WINDOW, BlasThreads
from callboard.core.backend.machine import cores
from callboard.core.backend.workers import LONG, Work


class Cores:
    """A clock, and what was set."""

    def __init__(self) -> None:
        self.now = 0.0
        self.set: list[int] = []

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def machine() -> Cores:
    return Cores()


@pytest.fixture
def unsaid(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*SETTINGS, blasthreads.MARK):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Work, "after_long", None)


def test_fewer_while_they_wait_and_all_again_when_they_do_not(machine: Cores) -> None:
    chosen = BlasThreads(8, machine.set.append, machine)
    for _ in range(10):
        chosen.saw(WINDOW, 0.1 * WINDOW)  # beside a little else
    assert (chosen.now, machine.set) == (8, [])
    for _ in range(4):
        chosen.saw(WINDOW, WINDOW)
    assert machine.set == [4, 2, 1]
    machine.now += SHORTEST / 2
    chosen.saw(WINDOW, 0.0)
    assert chosen.now == 1
    machine.now += SHORTEST
    chosen.saw(WINDOW, 0.0)
    machine.now += 0.1
    chosen.saw(WINDOW, 0.0)
    assert machine.set == [4, 2, 1, 2]
    for _ in range(4):
        machine.now += SHORTEST
        chosen.saw(WINDOW, 0.0)
    assert machine.set == [4, 2, 1, 2, 4, 8]


def test_little_is_seen_before_a_decision(machine: Cores) -> None:
    chosen = BlasThreads(2, machine.set.append, machine)
    for _ in range(4):
        chosen.saw(0.1 * WINDOW, 0.1 * WINDOW)
    assert machine.set == []
    chosen.saw(0.1 * WINDOW, 0.1 * WINDOW)
    assert machine.set == [1]


def test_it_tries_less_and_less_often_where_it_was_too_soon(machine: Cores) -> None:
    chosen = BlasThreads(2, machine.set.append, machine)
    tries = []
    for _ in range(40_000):
        machine.now += 0.1
        crowded = chosen.now == 2  # only several threads have to wait
        chosen.saw(WINDOW, WINDOW if crowded else 0.0)
        if chosen.now == 2:
            tries.append(machine.now)
    apart = [b - a for a, b in itertools.pairwise(tries)]
    assert apart[0] < 4 * SHORTEST
    assert LONGEST <= apart[-1] < 1.2 * LONGEST


@pytest.mark.usefixtures("unsaid")
def test_what_a_user_has_said_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    assert blasthreads.environment()[blasthreads.MARK] == "auto"
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(64)), raising=False)
    monkeypatch.setattr(blasthreads, "cores", lambda: 2)  # a quota
    assert blasthreads.environment()["OPENBLAS_NUM_THREADS"] == "2"
    monkeypatch.setenv(blasthreads.MARK, "off")
    assert blasthreads.environment()[blasthreads.MARK] == "off"
    for name in SETTINGS:
        monkeypatch.setenv(name, "3")
        assert blasthreads.environment() == {}
        monkeypatch.delenv(name)


@pytest.mark.usefixtures("unsaid")
def test_only_hosts_in_processes_watch_and_only_long_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blasthreads, "cores", lambda: 4)
    looks = []

    def look() -> tuple[float, float]:
        looks.append(1)
        return 0.0, 0.0

    monkeypatch.setattr(blasthreads, "_schedstat", look)
    blasthreads.watch()
    assert Work.after_long is None
    monkeypatch.setenv(blasthreads.MARK, "auto")
    monkeypatch.setattr(blasthreads, "_schedstat", lambda: None)  # a kernel that does not tell
    blasthreads.watch()
    assert Work.after_long is None
    monkeypatch.setattr(blasthreads, "_schedstat", look)
    blasthreads.watch()
    assert Work.after_long is not None
    looks.clear()
    Work("test", lambda: None, ()).execute()
    assert looks == []
    Work.after_long(LONG)
    Work.after_long(LONG)  # at once again: no look
    assert len(looks) == 1


def test_the_threads_of_this_process_are_set() -> None:
    """In a process of its own: the number is the whole process's."""
    program = (
        "import numpy, threadpoolctl\n"
        "from callboard.backends.cpu.blasthreads import _limit\n"
        "numpy.ones((9, 9)) @ numpy.ones((9, 9))\n"
        "_limit(1)\n"
        "found = [each['num_threads'] for each in threadpoolctl.threadpool_info() if each['user_api'] == 'blas']\n"
        "assert found and set(found) == {1}, found\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr


class Told(cb.ResidentActor):
    """Says how its process is set."""

    def told(self) -> tuple[str, bool]:
        return os.environ.get(blasthreads.MARK, ""), Work.after_long is not None


@pytest.mark.usefixtures("unsaid")
async def test_a_host_in_a_process_watches(monkeypatch: pytest.MonkeyPatch) -> None:
    async with cb.device("cpu", isolation="process") as device:
        actor: Any = await device.actor_of(cb.Props(Told), wait=True)
        mark, watches = await actor.call(Told.told)
        assert mark == "auto"
        assert watches or cores() < 2 or blasthreads._schedstat() is None
    assert Work.after_long is None  # not in this one
