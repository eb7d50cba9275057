"""Processes that methods of a resident actor start end with the host, also where it or the application is killed."""

import asyncio
import contextlib
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from tests.faults.load import BOUND, lost_and_recovered, signal_host
from tests.faults.programs import Program, Watched

import callboard as cb
from callboard.device.host import processgroup

pytestmark = [
    pytest.mark.fault,
    pytest.mark.leaves_nothing,
    pytest.mark.skipif(sys.platform != "linux", reason="process isolation is Linux only"),
]

LASTS = 100
"""Seconds: longer than the test."""


class Parent(cb.ResidentActor):
    def start(self, how: str) -> int:
        """The id of a process that lasts."""
        if how == "subprocess":
            self.started: Any = subprocess.Popen([sys.executable, "-c", f"import time; time.sleep({LASTS})"])
        else:
            context: Any = multiprocessing.get_context(how)
            self.started = context.Process(target=time.sleep, args=(LASTS,))
            self.started.start()
        return int(self.started.pid)

    def pid(self) -> int:
        return os.getpid()

    def children(self) -> int:
        """How many processes this one could wait for, now that the guard has been started."""
        for thread in threading.enumerate():
            if thread.name == "callboard-guard":
                thread.join(BOUND)
        with open(f"/proc/self/task/{os.getpid()}/children") as children:
            return len(children.read().split())


@pytest.mark.parametrize(
    "how, own_process",
    [
        ("subprocess", False),
        ("spawn", True),
        *(
            pytest.param(how, own, marks=pytest.mark.slow)
            for how, own in [("subprocess", True), ("spawn", False), ("forkserver", False), ("forkserver", True)]
        ),
    ],
)
async def test_they_end_where_the_host_is_replaced_and_closed(how: str, own_process: bool) -> None:
    async with cb.device("cpu", isolation="process") as dev:
        actor = dev.actor_of(cb.Props(Parent), name="parent", own_process=own_process).with_timeout(BOUND)
        first = Watched(await actor.call(Parent.start, how))
        host = await actor.call(Parent.pid)
        if own_process:
            os.kill(host, signal.SIGKILL)
        else:
            await lost_and_recovered(dev, lambda: signal_host(dev, signal.SIGKILL))
        assert await asyncio.to_thread(first.gone)
        second = Watched(await _started(actor, how))
    assert second.gone(0.0)
    for each in (first, second):
        each.close()


async def _started(actor: "cb.ResidentRef[Parent]", how: str) -> int:
    """Start one in the next process of the actor; a call fails that goes to the last before its end is noticed."""
    async with asyncio.timeout(BOUND):
        while True:
            with contextlib.suppress(cb.ContextPoisoned):
                return await actor.call(Parent.start, how)


async def test_the_guard_is_no_child_of_the_host() -> None:
    """``os.wait()`` of an actor must not wait for it."""
    async with cb.device("cpu", isolation="process") as dev:
        actor = dev.actor_of(cb.Props(Parent), name="parent").with_timeout(BOUND)
        assert await actor.call(Parent.children) == 0
        assert len(_members(await actor.call(Parent.pid))) == 2


# -- the application is killed -----------------------------------------------------------------------------------------

APPLICATION = """
import asyncio, ctypes, os, subprocess, sys
from multiprocessing.shared_memory import SharedMemory
import callboard as cb

class Parent(cb.ResidentActor):
    def start(self) -> None:
        for name, command, session in [
            ("usual", "echo; exec sleep 1000", False),
            ("stubborn", "trap '' TERM; echo; exec sleep 1000", False),
            ("apart", "echo; exec sleep 1000", True),
        ]:
            process = subprocess.Popen(["sh", "-c", command], stdout=subprocess.PIPE, start_new_session=session)
            process.stdout.readline()
            print(name, process.pid, flush=True)
        self.shared = SharedMemory(create=True, size=16)
        print("shared", self.shared.name, flush=True)
        print("host", os.getpid(), flush=True)

    def hold(self) -> None:
        print("holding", flush=True)
        ctypes.PyDLL(None).pause()  # keeps the GIL

async def main():
    async with cb.device("cpu", isolation="process", standby=None) as dev:
        actor = dev.actor_of(cb.Props(Parent), name="parent", own_process=sys.argv[1] == "own_process")
        await actor.call(Parent.start)
        if sys.argv[2] == "held":
            held = actor.call(Parent.hold)
        await asyncio.Event().wait()

asyncio.run(main())
"""


def _members(group: int) -> list[int]:
    return [int(pid) for pid in os.listdir("/proc") if pid.isdigit() and processgroup._group_of(pid) == group]


@pytest.mark.parametrize(
    "where, state", [("host", "idle"), ("host", "held"), ("own_process", "idle"), ("host", "stopped")]
)
def test_they_end_where_the_application_is_killed(tmp_path: Path, where: str, state: str) -> None:
    script = tmp_path / "application.py"
    script.write_text(APPLICATION)
    with Program(str(script), where, state) as program:
        usual, stubborn, apart = (Watched(int(program.line(name))) for name in ("usual", "stubborn", "apart"))
        segment = Path("/dev/shm") / program.line("shared")
        host = int(program.line("host"))
        members = [Watched(pid) for pid in _members(host)]
        try:
            assert {host, usual.pid, stubborn.pid} < {member.pid for member in members}
            if state == "held":
                program.line("holding")
            elif state == "stopped":
                os.kill(host, signal.SIGSTOP)
                os.kill(usual.pid, signal.SIGSTOP)
            assert segment.exists()
            os.kill(program.process.pid, signal.SIGKILL)
            for member in members:
                assert member.gone(), f"{member.pid} outlives the application"
            assert not apart.gone(0.0)
            assert not segment.exists()
        finally:
            for watched in (usual, stubborn, apart, *members):
                watched.kill()
                watched.close()
