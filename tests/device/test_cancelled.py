"""``cancelled_after``: an op whose awaiting task was cancelled is ended by a new context."""

import asyncio

import numpy as np
import pytest
from tests.faults.load import lost_and_recovered

import callboard as cb
from callboard.device.client.line.leaving import Left

BOUND = 100.0
"""Seconds for what would take half a minute or more, were the op not ended."""


@pytest.mark.timeout(BOUND + 20)
@pytest.mark.parametrize("what", ["get", "op"])
async def test_the_next_op_does_not_wait_for_it(what: str) -> None:
    async with cb.device("cpu", isolation="process", standby=None, cancelled_after=0.05) as gpu:
        kept = await gpu.put(np.ones((2, 2)))
        x = await gpu.put(np.random.default_rng(1).random((4000, 4000)))
        values = gpu.solver.svd(x)[1]
        waiting = asyncio.ensure_future(values.get() if what == "get" else waited(values))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        lost, _ = await lost_and_recovered(gpu, waiting.cancel)
        assert "ended by a cancellation" in str(lost.error)
        with pytest.raises(asyncio.CancelledError):
            await waiting
        with pytest.raises(cb.ContextPoisoned, match="ended by a cancellation"):
            await values
        with pytest.raises(cb.GpuRefStale):
            await kept.get()
        y = gpu.put(np.ones((2, 2)))
        assert (await gpu.blas.gemm(y, y).get()).sum() == 8


async def waited(values: cb.GpuRef) -> None:
    await values


class Config:
    cancelled_after: float | None = 0.0
    isolation = "process"


class Entry:
    def __init__(self) -> None:
        self.held = cb.Reply.__new__(cb.Reply)
        self.held._waiters = []

    def reply(self) -> object:
        return self.held


class Port:
    """What :class:`Left` sees of a port."""

    def __init__(self) -> None:
        self.config = Config()
        self.loop = asyncio.get_running_loop()
        self.unanswered = self
        self.entries: dict[int, Entry] = {}


async def turns() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_what_others_wait_for_runs_on() -> None:
    port, replaced = Port(), []
    left = Left(port)  # type: ignore[arg-type] # a stand-in
    left.replace = lambda: replaced.append(1)
    port.entries = {3: Entry(), 5: Entry(), 7: Entry()}
    port.entries[5].held._op = 5
    port.entries[3].held._waiters = [port.loop.create_future()]
    left(port.entries[5].held)
    await turns()
    assert not replaced, "an earlier op is awaited"
    port.entries[3].held._waiters = []
    port.entries[7].held._waiters = [port.loop.create_future()]
    await turns()
    assert replaced == [1], "a later op waits for it, too"


@pytest.mark.parametrize("setting, isolation", [(None, "process"), (0.0, "thread")])
async def test_it_is_opt_in(setting: float | None, isolation: str) -> None:
    port, replaced = Port(), []
    port.config.cancelled_after, port.config.isolation = setting, isolation
    left = Left(port)  # type: ignore[arg-type] # a stand-in
    left.replace = lambda: replaced.append(1)
    port.entries = {5: Entry()}
    port.entries[5].held._op = 5
    left(port.entries[5].held)
    await turns()
    assert not replaced
