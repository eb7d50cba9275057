"""Functions that actors register with ``atexit`` run when their host is closed in order."""

import asyncio
import logging
import sys
from pathlib import Path

import pytest
from tests.device.residents.lab import Gate
from tests.device.residents.offspring_lab import Founder
from tests.faults.load import BOUND

import callboard as cb

pytestmark = [
    pytest.mark.leaves_nothing,
    pytest.mark.skipif(sys.platform != "linux", reason="process isolation is Linux only"),
]


@pytest.mark.few(1)
@pytest.mark.parametrize("own_process", [False, True])
async def test_they_run_when_the_device_is_closed(tmp_path: Path, own_process: bool) -> None:
    told = tmp_path / "told"
    async with asyncio.timeout(BOUND), cb.device("cpu", isolation="process", standby=None) as dev:
        founder = dev.actor_of(cb.Props(Founder), own_process=own_process)
        await founder.call(Founder.at_exit, str(told))
        await founder.call(Founder.fail_at_exit)  # and this does not stop the other
        assert not told.exists()
    assert told.read_text() == "done"


async def test_they_run_when_an_actor_in_its_own_process_is_stopped(tmp_path: Path) -> None:
    told = tmp_path / "told"
    async with asyncio.timeout(BOUND), cb.device("cpu") as dev:
        founder = dev.actor_of(cb.Props(Founder), own_process=True)
        await founder.call(Founder.at_exit, str(told))
        await founder.stop_and_wait(timeout=BOUND)
        await dev._actor.own.close(BOUND)
        assert told.read_text() == "done"


@pytest.mark.slow
async def test_one_that_does_not_end_is_left(gate: Gate, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    async with (
        asyncio.timeout(BOUND),
        cb.device("cpu", isolation="process", standby=None, close_timeout=2 * BOUND) as dev,
    ):
        founder = dev.actor_of(cb.Props(Founder))
        await founder.call(Founder.block_at_exit, gate.path)
    assert "registered by atexit did not end within 2 s" in caplog.text
