"""Actors whose code does not return can be ended: with their process, or with the device's host on request."""

import asyncio
import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from tests.device.residents.lab import Gate
from tests.device.residents.stuck_lab import Stuck, StuckInPrepare, StuckInSetup, Sub
from tests.faults.load import BOUND
from tests.faults.programs import Watched

import callboard as cb
from callboard.actors.errors import ActorStopped, NameInUse
from callboard.device.client.line.status import ResidentState

pytestmark = [
    pytest.mark.fault,
    pytest.mark.leaves_nothing,
    pytest.mark.skipif(sys.platform != "linux", reason="process isolation is Linux only"),
]

SOON = 0.05

Closing = Callable[[Watched], Watched]


@pytest.fixture
def closing() -> Iterator[Closing]:
    """Closes the descriptor at the end of the test."""
    with contextlib.ExitStack() as stack:
        yield lambda process: stack.enter_context(contextlib.closing(process))


async def within(reply: Any) -> Any:
    async with asyncio.timeout(BOUND):
        return await reply


async def freed(dev: cb.Device, name: str, *, own_process: bool = False) -> cb.ResidentRef[Stuck]:
    """An actor under a name that becomes free."""
    async with asyncio.timeout(BOUND):
        while True:
            try:
                return dev.actor_of(cb.Props(Stuck), name=name, own_process=own_process)
            except NameInUse:
                await asyncio.sleep(0)


# -- processes of their own --------------------------------------------------------------------------------------------


@pytest.mark.few(1)
@pytest.mark.parametrize("waits", [True, False])
async def test_an_own_process_is_killed_if_its_actor_does_not_end(gate: Gate, closing: Closing, waits: bool) -> None:
    async with cb.device("cpu", close_timeout=0.2) as dev:
        x = dev.put(np.ones(3))
        stuck = dev.actor_of(cb.Props(Stuck), name="stuck", own_process=True)
        process = closing(Watched(await within(stuck.call(Stuck.pid))))
        running = stuck.call(Stuck.wait, gate.path)
        await gate.reached()
        queued = stuck.call(Stuck.add, 1)
        if waits:
            await within(stuck.stop_and_wait(timeout=SOON))
            assert process.gone(0.0)
            again = dev.actor_of(cb.Props(Stuck), name="stuck", own_process=True)
        else:
            stuck.stop()
            again = await freed(dev, "stuck", own_process=True)
        with pytest.raises(ActorStopped, match=r"did not end within 0\.\d+ s .* its process was killed"):
            await within(running)
        with pytest.raises(ActorStopped):
            await within(queued)
        with pytest.raises(ActorStopped, match="its process was killed"):
            stuck.call(Stuck.add, 1)
        assert stuck.state == ResidentState.STOPPED
        assert await within(again.call(Stuck.add, 1)) == 2
        assert (await x.get()).sum() == 3
        assert dev.health().restarts == 0
        assert await asyncio.to_thread(process.gone)


@pytest.mark.few(1)
@pytest.mark.parametrize("how", ["waits", "gil", "freezes"])
async def test_also_in_its_setup(gate: Gate, how: str) -> None:
    async with cb.device("cpu") as dev:
        stuck = dev.actor_of(cb.Props(StuckInSetup, how, gate.path), name="stuck", own_process=True)
        call = stuck.call(Stuck.add, 1)
        if how == "waits":
            await gate.reached()
        await within(stuck.stop_and_wait(timeout=SOON))
        with pytest.raises(ActorStopped):
            await within(call)
        dev.actor_of(cb.Props(Stuck), name="stuck", own_process=True)


async def test_an_own_process_is_not_killed_against_the_callers_word(gate: Gate) -> None:
    async with cb.device("cpu") as dev:
        stuck = dev.actor_of(cb.Props(Stuck), name="stuck", own_process=True)
        running = stuck.call(Stuck.wait, gate.path)
        await gate.reached()
        with pytest.raises(cb.AskTimeout, match="its code does not return; without kill=False its process is killed"):
            await within(stuck.stop_and_wait(timeout=SOON, kill=False))
        await gate.let_through()
        await within(running)
        await within(stuck.stop_and_wait(timeout=BOUND, kill=False))


async def test_an_actor_that_ends_in_time_is_not_killed(caplog: pytest.LogCaptureFixture) -> None:
    async with cb.device("cpu") as dev:
        actor = dev.actor_of(cb.Props(Stuck), own_process=True)
        assert await within(actor.call(Stuck.add, 1)) == 2
        await within(actor.stop_and_wait(timeout=BOUND))
    assert "killed" not in caplog.text


# -- the device's host -------------------------------------------------------------------------------------------------


async def in_wait(stuck: "cb.ResidentRef[Any]", gate: Gate) -> Any:
    running = stuck.call(Stuck.wait, gate.path)
    await gate.reached()
    return running


async def in_stream(stuck: "cb.ResidentRef[Any]", gate: Gate) -> Any:
    stream = stuck.stream(Stuck.items, gate.path)
    assert await anext(stream) == 1
    await gate.reached()
    return anext(stream)


async def in_coroutine(stuck: "cb.ResidentRef[Any]", gate: Gate) -> Any:
    running = stuck.call(Sub.block, gate.path)
    await gate.reached()
    return running


@pytest.mark.few(1)
@pytest.mark.parametrize("into", [in_wait, in_stream, in_coroutine])
async def test_in_the_devices_host_it_costs_the_context_if_that_is_asked_for(
    gate: Gate, into: Callable[..., Any]
) -> None:
    async with cb.device("cpu", isolation="process", standby=None) as dev:
        stuck = dev.actor_of(cb.Props(Sub), name="stuck")
        running = await into(stuck, gate)
        with pytest.raises(cb.AskTimeout, match=r"does not return; pass kill=True .* own_process=True"):
            await within(stuck.stop_and_wait(timeout=SOON))
        with pytest.raises(NameInUse, match="has not ended yet: await stop_and_wait"):
            dev.actor_of(cb.Props(Stuck), name="stuck")
        assert dev.health().restarts == 0
        await within(stuck.stop_and_wait(timeout=SOON, kill=True))
        with pytest.raises(cb.ContextPoisoned, match=r"resident actor stuck did not end within 0\.05 s"):
            await within(running)
        again = dev.actor_of(cb.Props(Stuck), name="stuck")
        assert await within(again.call(Stuck.add, 1)) == 2
        assert dev.health().restarts == 1


@pytest.mark.slow
async def test_later_without_waiting_too(gate: Gate) -> None:
    async with cb.device("cpu", isolation="process", standby=None, close_timeout=0.2) as dev:
        stuck = dev.actor_of(cb.Props(Stuck), name="stuck")
        running = await in_wait(stuck, gate)
        stuck.stop(kill=True)
        with pytest.raises(cb.ContextPoisoned, match=r"did not end within 0\.2 s"):
            await within(running)
        assert await within((await freed(dev, "stuck")).call(Stuck.add, 1)) == 2


@pytest.mark.slow
async def test_a_prepare_that_does_not_return_is_not_left_in_the_standby(gate: Gate, closing: Closing) -> None:
    async with cb.device("cpu", isolation="process", standby="warm") as dev:
        await within(dev._actor.until_standby())
        standby = dev._actor._standby.host
        assert standby is not None
        spare = closing(Watched(standby.pid))
        stuck = dev.actor_of(cb.Props(StuckInPrepare, gate.path), name="stuck")
        await gate.reached()
        await within(stuck.stop_and_wait(timeout=SOON, kill=True))
        assert await asyncio.to_thread(spare.gone)
        assert await within(dev.actor_of(cb.Props(Stuck), name="stuck").call(Stuck.add, 1)) == 2


@pytest.mark.parametrize("dispatcher", ["own", "caller"])
@pytest.mark.parametrize("kill", [None, True])
async def test_a_thread_cannot_be_killed(gate: Gate, dispatcher: Any, kill: bool | None) -> None:
    async with cb.device("cpu", isolation="thread", dispatcher=dispatcher) as dev:
        stuck = dev.actor_of(cb.Props(Stuck), name="stuck")
        running = await in_wait(stuck, gate)
        cure = "a thread cannot be killed: start the actor with own_process=True.*isolation='process'"
        with pytest.raises(TimeoutError, match=cure):
            await within(stuck.stop_and_wait(timeout=SOON, kill=kill))
        await gate.let_through()
        await within(running)
        await within(stuck.stop_and_wait(timeout=BOUND))


def test_of_a_blocking_device(gate: Gate, closing: Closing) -> None:
    with cb.sync.device("cpu") as dev:
        stuck = dev.actor_of(cb.Props(Stuck), name="stuck", own_process=True)
        process = closing(Watched(stuck.call(Stuck.pid)))
        running = stuck._ref.call(Stuck.wait, gate.path)
        asyncio.run(gate.reached())
        stuck.stop(timeout=SOON)
        assert process.gone(BOUND)
        with pytest.raises(ActorStopped, match="its process was killed"):
            running.result(BOUND)
        assert dev.actor_of(cb.Props(Stuck), name="stuck").call(Stuck.add, 1) == 2
