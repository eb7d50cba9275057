"""A host that hangs while it opens its device is replaced; on a clock of the test's own."""

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import numpy as np
import pytest
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


async def test_a_host_that_is_frozen_while_it_opens_is_replaced(
    watch: Watch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    spec = f"faulty+cpu?freeze_open=1&once={tmp_path}/struck"
    async with cb.System("test") as system:
        dev = await system.device(spec, wait=False, isolation="process", standby=None, step_timeout=60.0)
        first = dev.put(np.ones(4))
        await until((tmp_path / "struck").exists)
        pid = dev.health().host_pid
        assert pid is not None
        await until(lambda: is_stopped(pid))
        watch.passing = 1.0
        await until(lambda: "its stacks follow" in caplog.text)
        watch.passing = 0.0
        watch.now += DUMP_TIME
        assert "its step 'open' did not end within 60 s (step_timeout)" in caplog.text
        async with asyncio.timeout(BOUND):
            with pytest.raises(cb.ContextPoisoned, match="did not end within 60 s"):
                await first
            assert (await dev.put(np.ones(4)).get()).sum() == 4
        assert dev.health().restarts == 1
        assert dev.health().host_pid != pid
