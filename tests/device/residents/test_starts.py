"""Setups that lose the context: the actor is found and stopped, and no call is charged or refused on its account."""

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.device.residents.lab import Gate, Probe, wait_at

import callboard as cb
from callboard.device.client.residents import starts

pytestmark = [
    pytest.mark.fault,
    pytest.mark.leaves_nothing,
    pytest.mark.skipif(sys.platform != "linux", reason="process isolation is Linux only"),
]
BOUND = 60.0


class Crashing(cb.ResidentActor):
    """Its process ends while an instance is made, as often as ``times`` says; each time is noted in a file."""

    def __init__(self, where: str, times: int, noted: str) -> None:
        self.where, self.times, self.noted = where, times, noted
        self._end_in("__init__")

    def _end_in(self, where: str) -> None:
        if where != self.where:
            return
        with open(self.noted, "a") as file:
            file.write("x")
        if os.path.getsize(self.noted) <= self.times:
            os._exit(9)

    def prepare(self) -> None:
        self._end_in("prepare")

    def setup(self, ctx: cb.HostContext) -> None:
        self._end_in("setup")

    def echo(self, x: int) -> int:
        return x


class Gated(cb.ResidentActor):
    """Its setup waits at a gate."""

    def __init__(self, gate: str, *, crashes: bool = False) -> None:
        self.gate, self.crashes = gate, crashes

    def setup(self, ctx: cb.HostContext) -> None:
        wait_at(self.gate)
        if self.crashes:
            os._exit(9)

    def echo(self, x: int) -> int:
        return x


async def killed(dev: cb.Device) -> Any:
    """Kill the host; gives the error of the loss."""
    events, pid = dev.events(), dev.health().host_pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    lost: Any = await anext(events)
    return lost.error


@pytest.mark.few(1)
@pytest.mark.parametrize("standby", [None, "warm", "hot"])
@pytest.mark.parametrize("where", ["__init__", "prepare", "setup"])
async def test_the_actor_is_stopped_and_requests_in_flight_go_on(
    where: str, standby: Any, gates: Callable[[str], Gate], tmp_path: Path
) -> None:
    gate = gates("gate")
    async with asyncio.timeout(BOUND), cb.device("cpu", isolation="process", standby=standby, max_restarts=0) as dev:
        good = await dev.actor_of(cb.Props(Probe, 100), wait=True)
        quarantine = cb.Quarantine(good)
        waits = asyncio.create_task(quarantine.run("innocent", lambda probe: probe.call(Probe.wait, gate.path)))
        await gate.reached()
        bad = dev.actor_of(cb.Props(Crashing, where, 99, str(tmp_path / "noted")), name="bad")
        with pytest.raises(cb.ActorStopped, match="bad has stopped: 3 contexts in a row were lost during") as caught:
            await bad.ready()
        cause = caught.value.__cause__
        assert isinstance(cause, cb.ContextPoisoned)
        assert (cause.starting, bad.state, bad.cause) == (("bad",), "stopped", cause)
        gate.open_for_good()
        await waits
        stats = quarantine.stats()
        assert (stats.quarantined, stats.held, stats.suspects) == (0, {}, 0)
        assert await good.call(Probe.add, 1) == 101
        assert (dev.health().state, dev.health().restarts) == ("ready", 3)
        with pytest.raises(cb.ActorStopped, match="3 contexts in a row"):
            await bad.call(Crashing.echo, 1)
        again = dev.actor_of(cb.Props(Crashing, "never", 0, str(tmp_path / "noted")), name="bad")  # its name is free
        assert await again.call(Crashing.echo, 1) == 1


async def test_a_setup_that_loses_the_context_twice_is_tried_again(tmp_path: Path) -> None:
    async with asyncio.timeout(BOUND), cb.device("cpu", isolation="process", standby="warm", max_restarts=0) as dev:
        actor = dev.actor_of(cb.Props(Crashing, "setup", 2, str(tmp_path / "noted")))
        assert await actor.ready() is actor
        assert await actor.call(Crashing.echo, 3) == 3
        assert dev.health().restarts == 2


async def test_an_actor_without_restarts_is_stopped_at_the_first_loss_alone(tmp_path: Path) -> None:
    class Strict(Crashing):
        supervision = cb.OneForOne(max_restarts=0)

    async with asyncio.timeout(BOUND), cb.device("cpu", isolation="process", standby=None, max_restarts=0) as dev:
        strict = dev.actor_of(cb.Props(Strict, "setup", 99, str(tmp_path / "noted")))
        with pytest.raises(cb.ActorStopped, match="the context was lost during its setup"):
            await strict.ready()
        assert dev.health().restarts == 1


async def test_the_cause_is_found_among_actors_that_are_set_up_at_once(gates: Callable[[str], Gate]) -> None:
    slow, crash = gates("slow"), gates("crash")
    async with asyncio.timeout(BOUND), cb.device("cpu", isolation="process", standby=None, max_restarts=0) as dev:
        innocent = dev.actor_of(cb.Props(Gated, slow.path), name="innocent")
        bad = dev.actor_of(cb.Props(Gated, crash.path, crashes=True), name="bad")
        await slow.reached()
        await crash.reached()
        events = dev.events()
        crash.open_for_good()
        lost: Any = await anext(events)
        assert set(lost.error.starting) == {"innocent", "bad"}
        await slow.let_through()  # its caller has gone
        await slow.let_through()
        await innocent.ready()
        slow.open_for_good()
        with pytest.raises(cb.ActorStopped, match="bad has stopped"):
            await bad.ready()
        assert await innocent.call(Gated.echo, 1) == 1


async def test_calls_wait_for_a_suspect_only_for_a_time(
    gates: Callable[[str], Gate], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Afterwards a loss is charged to the calls in flight."""
    monkeypatch.setattr(starts, "SHORTEST", 0.0)
    monkeypatch.setattr(starts, "LONGEST", 0.0)
    setup, call = gates("setup"), gates("call")
    async with asyncio.timeout(BOUND), cb.device("cpu", isolation="process", standby=None, max_restarts=1) as dev:
        slow = dev.actor_of(cb.Props(Gated, setup.path), name="slow")
        good = await dev.actor_of(cb.Props(Probe, 100), wait=True)
        await setup.reached()
        assert (await killed(dev)).starting == ("slow",)
        assert await good.call(Probe.add, 1) == 101
        assert slow.state == "starting"
        running = good.call(Probe.wait, call.path)
        await call.reached()
        assert (await killed(dev)).starting == ()
        with pytest.raises(cb.ContextPoisoned) as caught:
            await running
        assert (caught.value.starting, caught.value.unsent) == ((), False)
        setup.open_for_good()
        await slow.ready()


async def test_a_suspect_that_waits_can_be_stopped(gates: Callable[[str], Gate]) -> None:
    first, second = gates("first"), gates("second")
    async with asyncio.timeout(BOUND), cb.device("cpu", isolation="process", standby=None, max_restarts=0) as dev:
        one = dev.actor_of(cb.Props(Gated, first.path), name="one")
        two = dev.actor_of(cb.Props(Gated, second.path), name="two")
        await first.reached()
        await second.reached()
        assert (await killed(dev)).starting == ("one", "two")
        await first.let_through()  # its caller has gone
        await first.reached()  # its setup alone, while `two` waits
        await two.stop_and_wait()
        await first.let_through()
        await one.ready()
        array = await dev.put([1.0]).get()
        assert array.tolist() == [1.0]


async def test_calls_that_wait_for_a_process_of_its_own_are_not_refused(tmp_path: Path) -> None:
    async with asyncio.timeout(BOUND), cb.device("cpu", isolation="process", standby=None, max_restarts=0) as dev:
        noted = str(tmp_path / "noted")
        actor = dev.actor_of(cb.Props(Crashing, "setup", 3, noted), own_process=True)
        quarantine = cb.Quarantine(actor)
        assert await quarantine.run("innocent", lambda it: it.call(Crashing.echo, 5)) == 5
        assert quarantine.stats().held == {}
        assert dev.health().restarts == 0
