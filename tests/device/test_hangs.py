"""A host that hangs in a long step is replaced; on a clock of the test's own."""

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import msgspec
import numpy as np
import pytest
from tests.device.residents.stuck_lab import StuckInSetup
from tests.faults.load import BOUND

import callboard as cb
from callboard.device.supervision.hosts import process
from callboard.device.supervision.hosts.monitor import DUMP_TIME, Monitor

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="process isolation is Linux only"),
    pytest.mark.fault,
]


class Watch:
    """A monitor that is turned on the loop, and given its time.

    Attributes:
        passing: Seconds that pass between two of its turns.
    """

    def __init__(self) -> None:
        self.now = self.passing = 0.0
        self.monitor = Monitor(lambda: self.now, threaded=False)

    async def run(self) -> None:
        while True:
            self.now += self.passing
            self.monitor.turn(0.005)
            await asyncio.sleep(0)

    async def hung(self, caplog: pytest.LogCaptureFixture) -> None:
        """Let time pass until a host counts as hung; it is killed then. No more passes than :data:`AT_MOST`."""
        began, self.passing = self.now, 1.0
        await until(lambda: "its stacks follow" in caplog.text)
        self.passing = 0.0
        assert self.now - began < AT_MOST
        self.now += DUMP_TIME


NOTHING = "in which its threads did nothing"

AT_MOST = 200.0
"""Seconds, less than ``step_timeout``; a silence counts once the process has really stopped."""


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(BOUND):
        while True:
            if condition():
                return
            await asyncio.sleep(0)


def is_stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


@pytest.fixture
async def watch(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Watch]:
    watch = Watch()
    monkeypatch.setattr(process, "default_monitor", lambda: watch.monitor)
    turning = asyncio.create_task(watch.run())
    yield watch
    turning.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await turning
    watch.monitor.after_fork()  # closes its descriptors


@pytest.mark.slow
async def test_a_host_that_is_frozen_while_it_opens_is_replaced(
    watch: Watch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    spec = f"faulty+cpu?freeze_open=1&once={tmp_path}/struck"
    async with cb.System("test") as system:
        dev = await system.device(spec, wait=False, isolation="process", standby=None)
        first = dev.put(np.ones(4))
        await until((tmp_path / "struck").exists)
        pid = dev.health().host_pid
        assert pid is not None
        await until(lambda: is_stopped(pid))
        await watch.hung(caplog)
        assert NOTHING in caplog.text
        async with asyncio.timeout(BOUND):
            with pytest.raises(cb.ContextPoisoned, match=NOTHING):
                await first
            assert (await dev.put(np.ones(4)).get()).sum() == 4
        assert dev.health().restarts == 1
        assert dev.health().host_pid != pid


@pytest.mark.few(1)
@pytest.mark.parametrize("own_process", [False, True])
@pytest.mark.parametrize("how", ["gil", "freezes"])
async def test_a_host_that_does_nothing_in_the_setup_of_an_actor_is_replaced(
    watch: Watch, tmp_path: Path, caplog: pytest.LogCaptureFixture, how: str, own_process: bool
) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    async with cb.System("test") as system:
        dev = await system.device("cpu", isolation="process", standby=None)
        stuck = dev.actor_of(cb.Props(StuckInSetup, how, str(gate)), own_process=own_process)
        await until(lambda: not gate.exists())
        if own_process:
            assert dev._actor.host is not None
            dev._actor.host.pause_watch(True)  # it beats in real time
        await watch.hung(caplog)
        assert NOTHING in caplog.text
        async with asyncio.timeout(BOUND):
            await stuck.ready()
            assert await stuck.call(StuckInSetup.add, 1) == 2


@pytest.mark.slow
async def test_a_standby_that_is_frozen_while_it_starts_is_replaced(
    watch: Watch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    spec = f"faulty+cpu?freeze_open=1&once={tmp_path}/struck"
    (tmp_path / "struck").touch()
    async with cb.System("test") as system:
        dev = await system.device(spec, isolation="process", standby=None)
        (tmp_path / "struck").unlink()
        dev._actor.config = msgspec.structs.replace(dev._actor.config, standby="hot")
        dev._actor._standby.ensure()
        await until((tmp_path / "struck").exists)
        frozen = dev._actor._standby.host
        assert frozen is not None
        await until(lambda: is_stopped(frozen.pid))
        assert dev._actor.host is not None
        dev._actor.host.pause_watch(True)  # it beats in real time
        await watch.hung(caplog)
        await until(lambda: dev._actor._standby.host not in (None, frozen))
        async with asyncio.timeout(BOUND):
            assert await dev._actor.until_standby()
        assert dev.health().restarts == 0
