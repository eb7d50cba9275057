"""A call that nobody waits for and that does not return costs its context, where the device says so."""

import asyncio
import gc
import logging
import sys
from functools import partial
from typing import Any

import pytest
from tests.device.residents.lab import Gate
from tests.device.residents.stuck_lab import Stuck
from tests.faults.load import BOUND

import callboard as cb
from callboard.device.supervision.watch import Recovered
from callboard.patterns.requests import runs

pytestmark = [
    pytest.mark.fault,
    pytest.mark.skipif(sys.platform != "linux", reason="process isolation is Linux only"),
]


@pytest.mark.parametrize("how", ["cancelled", "late"])
@pytest.mark.parametrize("own", [False, True], ids=["shared", "own process"])
async def test_a_call_that_does_not_return_makes_way(gate: Gate, how: str, own: bool) -> None:
    async with (
        asyncio.timeout(BOUND),
        cb.device("cpu", isolation="process", standby=None, abandoned_after=0.05) as dev,
    ):
        actor = dev.actor_of(cb.Props(Stuck), own_process=own)
        before = await actor.call(Stuck.pid)
        stuck = (actor.with_timeout(0.05) if how == "late" else actor).call(Stuck.wait, gate.path)
        behind = actor.call(Stuck.add, 1)
        await gate.reached()
        if how == "cancelled":
            stuck.cancel()
        with pytest.raises((cb.ContextPoisoned, cb.AskTimeout)):
            await stuck
        with pytest.raises(cb.ContextPoisoned, match="abandoned_after") as lost:
            await behind
        place = next(line for line in str(lost.value).splitlines() if line.startswith("it was at "))
        assert "in wait_at (thread 0x" in place  # not the thread that serves
        assert "Current thread" in lost.value.details
        assert await actor.call(Stuck.add, 2) == 3
        assert await actor.call(Stuck.pid) != before
        assert dev.health().restarts == (0 if own else 1)


async def test_a_caller_that_was_told_of_the_time_limit_is_not_missed(
    gate: Gate, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR, "callboard"):
        async with (
            asyncio.timeout(BOUND),
            cb.device("cpu", isolation="process", standby=None, abandoned_after=0.05) as dev,
        ):
            actor = dev.actor_of(cb.Props(Stuck))
            await actor.ready(timeout=BOUND)
            events = dev.events()
            with pytest.raises(cb.AskTimeout):
                await actor.with_timeout(0.05).call(Stuck.wait, gate.path)
            while not isinstance(await anext(events), Recovered):
                pass
            gc.collect()
            await asyncio.sleep(0)
            assert dev.health().restarts == 1
    assert [r for r in caplog.records if "is lost" in r.message]
    assert not [r for r in caplog.records if "was not awaited" in r.message]


async def test_a_call_that_somebody_waits_for_runs_on(gate: Gate) -> None:
    async with (
        asyncio.timeout(BOUND),
        cb.device("cpu", isolation="process", standby=None, abandoned_after=0.01) as dev,
    ):
        actor = dev.actor_of(cb.Props(Stuck))
        awaited = actor.call(Stuck.wait, gate.path)
        withdrawn = actor.call(Stuck.add, 1)
        await gate.reached()
        withdrawn.cancel()  # it has not begun: it ends at once
        with pytest.raises(cb.Withdrawn):
            await withdrawn
        other = dev.actor_of(cb.Props(Stuck))
        for n in range(20):  # time passes
            assert await other.call(Stuck.add, n) == n + 1
        await gate.let_through()
        await awaited
        assert dev.health().restarts == 0


@pytest.mark.parametrize("awaits", [False, True], ids=["a method", "a function that awaits it"])
@pytest.mark.parametrize("neighbour", ["leaves", "waits"])
async def test_requests_of_a_batch_that_hangs_make_way(
    gate: Gate, neighbour: str, awaits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "DOUBT_AFTER", 0.05)
    monkeypatch.setattr(runs, "DOUBT", 0.0)
    async with (
        asyncio.timeout(BOUND),
        cb.device("cpu", isolation="process", standby=None, abandoned_after=0.05) as dev,
    ):
        actor = dev.actor_of(cb.Props(Batch, gate.path))

        async def answer(numbers: list[int]) -> list[int]:
            return await actor.call(Batch.answer, numbers)

        function: Any = answer if awaits else partial(actor.call, Batch.answer)
        async with cb.DynamicBatchingServer(function, max_batch=4, max_wait=0.0) as server:
            assert await server.submit(3) == 6
            server.hold(2)
            hung = [asyncio.ensure_future(server.submit(n)) for n in (-1, 1)]
            await gate.reached()
            behind = asyncio.ensure_future(server.submit(2))
            if neighbour == "leaves":
                hung[1].cancel()
            hung[0].cancel()
            assert await behind == 4
            ends = await asyncio.gather(*hung, return_exceptions=True)
            assert ends[1] == 2 or neighbour == "leaves"
        assert dev.health().restarts == 1


class Batch(Stuck):
    """Does not return from a batch with a negative number."""

    def __init__(self, gate: str) -> None:
        self.gate = gate

    def answer(self, numbers: list[int]) -> list[int]:
        if min(numbers) < 0:
            self.wait(self.gate)
        return [2 * n for n in numbers]
