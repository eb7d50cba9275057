"""Readiness of resident actors: ``ready()``, ``state`` and ``cause``, in every place where a context may live."""

import asyncio
import math
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.device.residents.lab import Brief, Gate, Probe, SlowSetup, wait_at

import callboard as cb
from callboard.actors.errors import ActorStopped, NameInUse

pytestmark = pytest.mark.leaves_nothing

SOON = 20.0


async def until(dev: cb.Device, is_so: Callable[[], bool]) -> None:
    """The application has heard of it: an answer of the host comes behind what the host had to tell."""
    async with asyncio.timeout(SOON):
        while not is_so():
            await dev.stats()


class Gated(Brief):
    """Each setup waits at its own gate; a ValueError of a method restarts it once."""

    def __init__(self, *gates: str) -> None:
        super().__init__()
        self.gates = gates

    def setup(self, ctx: cb.HostContext) -> None:
        super().setup(ctx)
        log = Path(self.gates[0] + ".setups")
        times = len(log.read_text()) if log.exists() else 0
        log.write_text("x" * (times + 1))
        if times < len(self.gates):
            wait_at(self.gates[times])


class NeverUp(Brief):
    """Its setup fails."""

    def setup(self, ctx: cb.HostContext) -> None:
        raise LookupError("no weights")


async def test_an_actor_is_starting_until_its_setup_is_done(anywhere: cb.Device, gate: Gate) -> None:
    slow = anywhere.actor_of(cb.Props(SlowSetup, gate.path))
    waiting = asyncio.create_task(slow.ready())
    await gate.reached()
    await anywhere.stats()
    assert slow.state == "starting"
    assert slow.cause is None
    assert not waiting.done()
    await gate.let_through()
    async with asyncio.timeout(SOON):
        assert await waiting is slow
    assert slow.state == "ready"
    assert await slow.ready(timeout=SOON) is slow  # at once


async def test_an_instance_that_failed_is_restarting_with_its_cause(
    anywhere: cb.Device, gates: Callable[[str], Gate]
) -> None:
    first, second = gates("first"), gates("second")
    gated = anywhere.actor_of(cb.Props(Gated, first.path, second.path))
    await first.let_through()
    await gated.ready(timeout=SOON)
    with pytest.raises(ValueError, match="no"):
        await gated.call(Probe.fail, "value")
    await second.reached()
    await until(anywhere, lambda: gated.state == "restarting")
    assert isinstance(gated.cause, ValueError)
    assert gated.cause.args == ("no", 3)
    waiting = asyncio.create_task(gated.ready(timeout=SOON))
    await anywhere.stats()
    assert not waiting.done()
    await second.let_through()
    await waiting
    assert (str(gated.state), gated.restarts) == ("ready", 1)
    assert (await gated.ready()).cause is None


async def test_an_actor_that_gives_up_is_stopped_with_its_cause(anywhere: cb.Device) -> None:
    actor = anywhere.actor_of(cb.Props(NeverUp), name="never")
    waiting = [asyncio.create_task(actor.ready(timeout=SOON)) for _ in range(2)]
    for one in waiting:
        with pytest.raises(ActorStopped, match="never has stopped: LookupError: no weights") as caught:
            await one
        assert isinstance(caught.value.__cause__, LookupError)
        assert caught.value.device == anywhere.name
    assert actor.state == "stopped"
    assert isinstance(actor.cause, LookupError)
    with pytest.raises(ActorStopped, match="no weights"):
        await actor.ready()


async def test_an_actor_that_was_told_to_stop_has_no_cause(anywhere: cb.Device, gate: Gate) -> None:
    slow = anywhere.actor_of(cb.Props(SlowSetup, gate.path), name="slow")
    waiting = asyncio.create_task(slow.ready())
    await gate.reached()
    slow.stop()
    assert (slow.state, slow.cause) == ("stopped", None)
    async with asyncio.timeout(SOON):
        with pytest.raises(ActorStopped, match="slow was stopped"):
            await waiting  # though its setup is not done
    await gate.let_through()
    await slow.stop_and_wait(timeout=SOON)
    assert (slow.state, slow.cause) == ("stopped", None)


async def test_a_wait_that_takes_too_long_ends_and_the_actor_goes_on(anywhere: cb.Device, gate: Gate) -> None:
    slow = anywhere.actor_of(cb.Props(SlowSetup, gate.path), name="slow")
    await gate.reached()
    with pytest.raises(TimeoutError, match=r"slow is starting, not ready within 0\.01 s") as caught:
        await slow.ready(timeout=0.01)
    assert isinstance(caught.value, cb.AskTimeout)
    cancelled = asyncio.create_task(slow.ready())
    await asyncio.sleep(0)
    cancelled.cancel()
    with pytest.raises(asyncio.CancelledError):
        await cancelled
    assert slow._actor._watching == []
    await gate.let_through()
    await slow.ready(timeout=SOON)


async def test_a_wait_for_nan_seconds_is_refused(dev: cb.Device) -> None:
    probe = dev.actor_of(cb.Props(Probe))
    with pytest.raises(ValueError, match="timeout must be a number of seconds, or None, but is nan"):
        await probe.ready(timeout=math.nan)
    await probe.ready(timeout=math.inf)


async def test_a_start_may_wait_until_the_actor_is_ready(anywhere: cb.Device, gate: Gate) -> None:
    starting = asyncio.create_task(anywhere.actor_of(cb.Props(SlowSetup, gate.path), name="slow", wait=True))
    await gate.reached()
    await anywhere.stats()
    assert not starting.done()
    with pytest.raises(NameInUse):
        _ = anywhere.actor_of(cb.Props(Probe), name="slow", wait=True)  # refused by the call itself
    await gate.let_through()
    async with asyncio.timeout(SOON):
        slow = await starting
    assert (slow.name, slow.state) == ("slow", "ready")
    assert await slow.call(Probe.add, 1) == 1


async def test_an_actor_that_does_not_come_up_frees_its_name(anywhere: cb.Device) -> None:
    async with asyncio.timeout(SOON):
        with pytest.raises(ActorStopped, match="never has stopped: LookupError: no weights") as caught:
            await anywhere.actor_of(cb.Props(NeverUp), name="never", wait=True)
        assert isinstance(caught.value.__cause__, LookupError)
        probe = await anywhere.actor_of(cb.Props(Probe), name="never", wait=True)
    assert await probe.call(Probe.add, 1) == 1


async def test_a_start_that_is_cancelled_stops_the_actor_and_frees_its_name(anywhere: cb.Device, gate: Gate) -> None:
    starting = asyncio.create_task(anywhere.actor_of(cb.Props(SlowSetup, gate.path), name="slow", wait=True))
    await gate.reached()
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    async with asyncio.timeout(SOON):  # while the first one's setup still runs
        again = await anywhere.actor_of(cb.Props(Probe), name="slow", wait=True)
    await gate.let_through()
    assert await again.call(Probe.add, 1) == 1
    assert again.state == "ready"


async def test_a_device_that_stops_ends_the_wait(place: dict[str, Any], gate: Gate) -> None:
    async with cb.device("cpu", close_timeout=5.0, **place) as dev:
        slow = dev.actor_of(cb.Props(SlowSetup, gate.path))
        waiting = asyncio.create_task(slow.ready())
        await gate.reached()
        closing = asyncio.ensure_future(dev.close())
        async with asyncio.timeout(SOON):
            with pytest.raises(cb.DeviceStopped):
                await waiting
            await gate.let_through()
            await closing
        assert slow.state == "stopped"
        assert isinstance(slow.cause, cb.DeviceStopped)
        with pytest.raises(cb.DeviceStopped):
            await slow.ready()


async def test_an_actor_of_a_device_that_is_not_open_yet_can_be_waited_for(place: dict[str, Any]) -> None:
    async with cb.System("test") as system:
        dev = await system.device("cpu", wait=False, **place)
        probe = dev.actor_of(cb.Props(Probe))
        assert probe.state == "starting"
        await probe.ready(timeout=SOON)
        assert probe.state == "ready"


@pytest.mark.slow
@pytest.mark.fault
@pytest.mark.parametrize("standby", [None, "warm", "hot"])
@pytest.mark.few(1)
async def test_a_lost_context_makes_it_restart_in_the_next(standby: Any, gates: Callable[[str], Gate]) -> None:
    first, second = gates("first"), gates("second")
    async with cb.device("cpu", isolation="process", standby=standby) as dev:
        gated = dev.actor_of(cb.Props(Gated, first.path, second.path))
        await first.let_through()
        await gated.ready(timeout=SOON)
        pid = dev.health().host_pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        await second.reached()
        assert (gated.state, gated.cause) == ("restarting", None)
        waiting = asyncio.create_task(gated.ready(timeout=SOON))
        await dev.stats()
        assert not waiting.done()
        await second.let_through()
        await waiting
        assert gated.state == "ready"
        assert gated.restarts == 0
        assert await gated.call(Probe.add, 1) == 1
