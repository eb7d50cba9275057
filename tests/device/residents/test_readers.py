"""Calls that do not begin, while ops read their arrays: memory that is freed behind the call stays until it is read."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any
from unittest import mock

import numpy as np
import pytest
from tests.device.residents.lab import Gate, Probe
from tests.device.steps import Left, Right, StepsBackend, events

import callboard as cb
from callboard.actors.errors import ActorStopped
from callboard.core import registry
from callboard.device.host.residents import item

pytestmark = pytest.mark.leaves_nothing

BOUND = 20.0


class Writing(Probe):
    def increment_by(self, array: Any, by: cb.In) -> None:
        array += by


Probes = cb.ResidentRef[Writing]
Way = Callable[[cb.Device, Probes, Any, Gate], Awaitable[None]]


@pytest.fixture
async def dev() -> AsyncIterator[cb.Device]:
    events.clear()
    undo = registry.register("steps", StepsBackend())
    try:
        async with cb.device("steps", isolation="thread", close_timeout=5.0) as device:
            try:
                yield device
            finally:
                for event in list(events.values()):
                    event.set()
    finally:
        undo()


async def cancelled(dev: cb.Device, probe: Probes, x: Any, gate: Gate) -> None:
    running = probe.call(Writing.wait, gate.path)
    await gate.reached()
    doomed = probe.call(Writing.increment, x)
    await dev.stats()  # it has been admitted
    doomed.cancel()
    with pytest.raises(cb.Withdrawn):
        await doomed
    await gate.let_through()
    await running


async def late(dev: cb.Device, probe: Probes, x: Any, gate: Gate) -> None:
    brief = probe.with_timeout(1000.0)
    with mock.patch.object(item, "time", mock.Mock(monotonic=lambda: time.monotonic() + 2000.0)):
        with pytest.raises(cb.AskTimeout, match="before it began"):
            await brief.call(Writing.increment, x)


async def spoilt(dev: cb.Device, probe: Probes, x: Any, gate: Gate) -> None:
    by = dev.ask(Left(x=await dev.put(np.ones(4, "f4")), after="failing", fails=True))
    running = probe.call(Writing.wait, gate.path)
    await gate.reached()
    doomed = probe.call(Writing.increment_by, x, by)
    await dev.stats()
    events["failing"].set()
    with pytest.raises(cb.LibraryError, match="told to fail"):
        await by
    await gate.let_through()
    with pytest.raises(cb.LibraryError, match="told to fail"):
        await doomed
    await running


async def stopped(dev: cb.Device, probe: Probes, x: Any, gate: Gate) -> None:
    running = probe.call(Writing.wait, gate.path)
    await gate.reached()
    doomed = probe.call(Writing.increment, x)
    await dev.stats()
    probe.stop()
    await dev.stats()  # its host has heard of it
    await gate.let_through()
    await running
    with pytest.raises(ActorStopped):
        await doomed
    await probe.stop_and_wait(timeout=BOUND)


@pytest.mark.parametrize("way", [cancelled, late, spoilt, stopped])
async def test_an_array_stays_until_it_is_read(dev: cb.Device, gate: Gate, way: Way) -> None:
    async with asyncio.timeout(BOUND):
        probe = await dev.actor_of(cb.Props(Writing)).ready()
        x = await dev.put(np.ones(4, "f4"))
        reader = dev.ask(Right(x=x, after="go"))
        await dev.stats()
        await way(dev, probe, x, gate)
        x.free()
        await dev.trim()  # memory that is given back is overwritten there
        events["go"].set()
        assert (await reader.get()).tolist() == [2.0] * 4
