"""With a guardian, processes that actors have started end with the host, however that ends."""

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any

import pytest
from tests.device.residents.offspring_lab import Founder
from tests.faults.load import BOUND, lost_and_recovered, signal_host
from tests.faults.programs import Program, Watched

import callboard as cb
from callboard.device.host.guardian import MARK

pytestmark = [
    pytest.mark.fault,
    pytest.mark.leaves_nothing,
    pytest.mark.skipif(sys.platform != "linux", reason="process isolation is Linux only"),
]

HOW: list[list[str]] = [[], ["session"], ["environment"], ["deaf"], ["session", "deaf"]]

APPLICATION = f"""
import asyncio
import callboard as cb
from tests.device.residents.offspring_lab import Founder

async def main():
    async with cb.device("cpu", isolation="process", standby="warm", guardian=True) as dev:
        for own in (False, True):
            founder = dev.actor_of(cb.Props(Founder), own_process=own)
            print("host", await founder.call(Founder.pid))
            for how in {HOW}:
                print("pid", await founder.call(Founder.start, how))
        print("done")
        await asyncio.sleep(100)

asyncio.run(main())
"""

Watch = Callable[[int], Watched]


@pytest.fixture
def watched() -> Iterator[Watch]:
    with ExitStack() as stack:
        yield lambda pid: stack.enter_context(closing(Watched(pid)))


@pytest.mark.slow
def test_they_end_with_an_application_that_is_killed(watched: Watch) -> None:
    with Program("-c", APPLICATION, text="") as program:
        program.line("done")
        pids = [int(line.split()[1]) for line in program.output.splitlines() if line.startswith(("pid", "host"))]
        assert len(pids) == 2 + 2 * len(HOW)
        processes = [watched(pid) for pid in pids]
        program.process.kill()
        assert all(process.gone() for process in processes)


async def _started(founder: "cb.ResidentRef[Founder]", watched: Watch) -> list[Watched]:
    async with asyncio.timeout(BOUND):
        return [watched(await founder.call(Founder.start, how)) for how in HOW]


@pytest.mark.slow
async def test_they_end_with_a_host_that_is_killed_and_with_one_that_is_closed(watched: Watch) -> None:
    async with cb.device("cpu", isolation="process", guardian=True) as dev:
        founder = dev.actor_of(cb.Props(Founder))
        first = await _started(founder, watched)
        await lost_and_recovered(dev, lambda: signal_host(dev, signal.SIGKILL))
        for process in first:
            assert await asyncio.to_thread(process.gone)
        second = await _started(founder, watched)
    assert all(process.gone() for process in second)


@pytest.mark.few(1)
@pytest.mark.parametrize("guardian", [False, True])
async def test_a_host_has_one_if_that_is_asked_for(monkeypatch: pytest.MonkeyPatch, guardian: bool) -> None:
    """Also where the application itself runs below a host with a guardian, whose mark it inherits."""
    monkeypatch.setenv(MARK, "of another")
    async with cb.device("cpu", isolation="process", standby=None, guardian=guardian) as dev:
        host = dev.health().host_pid
        assert host is not None
        group = [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if group_of(pid) == host]
        assert len(group) == 1 + guardian
        assert (f"{MARK}=of another".encode() in environment_of(host)) is not guardian


def environment_of(pid: int) -> bytes:
    return Path(f"/proc/{pid}/environ").read_bytes()


def group_of(pid: int) -> int:
    with suppress(ProcessLookupError):
        return os.getpgid(pid)
    return 0


@pytest.mark.few(1)
@pytest.mark.parametrize("dispatcher", ["own", "caller"])
async def test_an_actor_in_a_thread_is_refused(dispatcher: Any) -> None:
    async with cb.device("cpu", isolation="thread", dispatcher=dispatcher, guardian=True) as dev:
        with pytest.raises(ValueError, match=r"guardian=True.*isolation='process'.*own_process=True"):
            dev.actor_of(cb.Props(Founder))
        async with asyncio.timeout(BOUND):
            assert await dev.actor_of(cb.Props(Founder), own_process=True).call(Founder.pid) != os.getpid()
