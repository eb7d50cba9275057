"""A stream that stands still: a loss where a limit was set, the end of a device in a thread."""

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.faults.load import BOUND

import callboard as cb
from callboard.core import registry
from callboard.device.configure import device_config
from callboard.testing.faulty import FaultyBackend

pytestmark = [pytest.mark.fault, pytest.mark.leaves_nothing]

ONES = np.ones(4, np.float32)


async def ended(reply: Any) -> BaseException:
    """The error that a reply ends in."""
    async with asyncio.timeout(BOUND):
        with pytest.raises(cb.AccelError) as caught:
            await reply
    return caught.value


@pytest.mark.few(1)
@pytest.mark.parametrize("completion", ["host_fn", "polled", "sync"])
async def test_a_stream_that_stands_still_is_a_loss(completion: str, tmp_path: Path) -> None:
    options = {"isolation": "process", "standby": "hot", "completion": completion}
    async with cb.device(f"faulty+cpu?hang_at=4&once={tmp_path}/struck", stall_after=1.0, **options) as dev:
        assert await dev.standby_ready()
        before, a = dev.generation, dev.put(ONES)
        assert (await a.get()).sum() == 4
        behind = [dev.copy(a) for _ in range(3)]
        errors = [await ended(copy) for copy in behind[1:]]
        assert type(errors[1]) is cb.ContextPoisoned
        assert "has finished nothing for 1 s" in str(errors[0])
        assert "memory.copy is its oldest op" in str(errors[0])
        assert isinstance(errors[0], cb.ContextPoisoned)
        assert errors[0].suspects[0].op == "memory.copy"
        assert dev.generation > before
        assert (await dev.put(ONES).get()).sum() == 4
        assert dev.health().restarts == 1


@pytest.mark.slow
async def test_a_stream_that_stands_still_is_found_behind_work_that_crosses_libraries(tmp_path: Path) -> None:
    """The get is on the stream of the put that hangs, and waits for the gemm that waits for the put."""
    spec = f"faulty+cpu?hang_at=2&once={tmp_path}/struck"
    async with cb.device(spec, isolation="process", standby=None, stall_after=1.0) as dev:
        a = dev.put(np.ones((4, 4), np.float32))
        await a
        b = dev.put(np.ones((4, 4), np.float32))
        error = await ended(dev.blas.gemm(a, b).get())
        assert isinstance(error, cb.ContextPoisoned)
        assert "stream 0 has finished nothing for 1 s" in str(error)
        assert "memory.upload is its oldest op" in str(error)


@pytest.mark.few(1)
@pytest.mark.parametrize("dispatcher", ["own", "caller"])
async def test_a_stream_that_stands_still_in_a_thread_stops_the_device(dispatcher: str) -> None:
    faulty = FaultyBackend("cpu", hang_at=2)
    undo = registry.register(faulty.spec, faulty)
    try:
        options = {"isolation": "thread", "dispatcher": dispatcher, "completion": "polled"}
        async with cb.device(faulty.spec, stall_after=1.0, **options) as dev:
            a = dev.put(ONES)
            error = await ended(dev.copy(dev.copy(a)))
            assert isinstance(error, cb.Unrecoverable)
            assert "has finished nothing for 1 s" in str(error)
            assert "open the device with isolation='process'" in str(error)
            assert dev.stopped
    finally:
        undo()
        for opened in faulty.opened:  # what a thread leaves behind when the device is not to be touched
            opened.release_hang()
            opened.close()


@pytest.mark.slow
async def test_long_ops_within_the_limit_are_no_stall() -> None:
    async with cb.device("faulty+cpu?slow_at=2&delay=0.4", isolation="process", standby=None, stall_after=20) as dev:
        a = dev.put(ONES)
        assert (await dev.copy(dev.copy(a)).get()).sum() == 4
        assert dev.health().restarts == 0


def test_a_limit_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="stall_after"):
        device_config("process", None, {"stall_after": 0.0})
