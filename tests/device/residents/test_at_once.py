"""Calls that come alone: admitted, run and answered in one step; all others in order with what is in flight."""

import asyncio
from collections.abc import Iterator
from typing import Any
from unittest import mock

import numpy as np
import pytest
from tests.device.residents.lab import Gate, Probe
from tests.device.residents.test_leading import bounded, leading

import callboard as cb
from callboard.device.host.residents.shortcut import Shortcut

pytestmark = pytest.mark.leaves_nothing

TIME = 20.0


class Steps:
    """How often a call was admitted, and answered, in one step."""

    def __init__(self) -> None:
        self.admitted = self.answered = 0


@pytest.fixture
def steps() -> Iterator[Steps]:
    seen = Steps()
    admit, answer = Shortcut.admit, Shortcut.settle

    def admitted(self: Shortcut, *arguments: Any) -> Any:
        item = admit(self, *arguments)
        seen.admitted += item is not None
        return item

    def answered(self: Shortcut, *arguments: Any) -> bool:
        done = answer(self, *arguments)
        seen.answered += done
        return done

    with mock.patch.object(Shortcut, "admit", admitted), mock.patch.object(Shortcut, "settle", answered):
        yield seen


async def test_calls_that_come_alone(steps: Steps) -> None:
    async with cb.device("cpu", isolation="thread") as dev:
        probe = dev.actor_of(cb.Props(Probe))
        array = np.arange(50_000, dtype=np.float32)
        async with asyncio.timeout(TIME):
            while steps.admitted < 20 or steps.answered < 20:
                await probe.call(Probe.add, 1)
            steps.admitted = steps.answered = 0
            while steps.admitted < 5 or steps.answered < 5:
                np.testing.assert_array_equal(await probe.call(Probe.echo, array), array)
            while (await dev.stats()).staged_bytes:
                await probe.call(Probe.add, 0)
        stats = (await dev.stats()).residents[probe.name]
        assert stats.in_flight == 0
        assert stats.failed == 0


async def test_calls_that_are_queued(steps: Steps) -> None:
    async with cb.device("cpu", isolation="thread") as dev:
        probe = dev.actor_of(cb.Props(Probe))
        async with asyncio.timeout(TIME):
            begun = 0
            while steps.answered < 50:
                await leading(probe)
                assert await bounded(*(probe.call(Probe.add, 1) for _ in range(20))) == [*range(begun + 1, begun + 21)]
                begun += 20


async def test_device_arrays_failures_and_traced_calls_are_settled_in_order(steps: Steps) -> None:
    async with cb.device("cpu", isolation="thread") as dev:
        probe = dev.actor_of(cb.Props(Probe))
        x = dev.full(4, 2.0, "f64")
        await leading(probe)
        steps.admitted = steps.answered = 0
        assert await probe.call(Probe.total_of, x) == 8.0
        with pytest.raises(ValueError, match="no"):
            await probe.call(Probe.fail, "value")
        made = await probe.call(Probe.make, 3)
        assert made.shape == (3,)
        assert steps.answered == 0
        await leading(probe)
        records: list[Any] = []
        await dev.trace(records.append)
        steps.answered = 0
        for _ in range(5):
            await probe.call(Probe.add, 1)
        assert steps.answered == 0
        await dev.stats()
        assert sum(record.tag.endswith(".add") for record in records) == 5


async def test_ops_and_calls_in_turn_keep_their_order(dev: cb.Device) -> None:
    probe = dev.actor_of(cb.Props(Probe))
    x = dev.zeros(4, "f64")
    await leading(probe)
    for n in range(1, 101):
        dev.fill(x, float(n))
        plain = probe.call(Probe.add, 1)
        reading = probe.call(Probe.total_of, x)
        dev.fill(x, -1.0)
        async with asyncio.timeout(TIME):
            assert await plain == n
            assert await reading == 4.0 * n


async def test_a_call_that_is_sent_at_once_is_cancelled(dev: cb.Device, gate: Gate) -> None:
    probe = dev.actor_of(cb.Props(Probe))
    await leading(probe)
    running = probe.call(Probe.wait, gate.path)
    behind = probe.call(Probe.add, 1)
    async with asyncio.timeout(TIME):
        await gate.reached()
        assert behind.cancel()
        await dev.stats()
        await gate.let_through()
        await running
        with pytest.raises(cb.Withdrawn):
            await behind
        assert await probe.call(Probe.add, 1) == 1


async def test_the_actor_is_stopped_while_it_leads(dev: cb.Device) -> None:
    probe = dev.actor_of(cb.Props(Probe))
    await leading(probe)
    replies = [probe.call(Probe.add, 1)]
    probe.stop()
    with pytest.raises(cb.ActorStopped):
        probe.call(Probe.add, 1)
    results = await asyncio.wait_for(asyncio.gather(*replies, return_exceptions=True), TIME)
    assert results == [1] or isinstance(results[0], cb.ActorStopped)
