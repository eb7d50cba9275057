"""Standbys: as many as are wanted, the ready one first, replaced when they are taken and when they die."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.device.supervision.scripted import ScriptedHost, ScriptedStarter

import callboard as cb
import callboard.system
from callboard.actors import ManualClock
from callboard.device.protocol.messages import ActorEvent
from callboard.device.supervision import standby as standby_module
from callboard.device.supervision.hosts import starting
from callboard.device.supervision.hosts.starting import CORES, Starting, starts_at_once

ROOM = 8 * CORES
"""Cores with which all standbys of a test start at once."""


class GatedStarter(ScriptedStarter):
    """Starts standbys when the test lets it."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = asyncio.Event()
        self.gate.set()
        self.started_late = 0
        self.starting = Starting()

    async def start(self, on_message: Callable[..., None], on_end: Callable[..., None], label: str) -> Any:
        if label.endswith("/standby"):
            await self.gate.wait()
            self.started_late += 1
        return await super().start(on_message, on_end, label)

    def of(self, role: str) -> list[ScriptedHost]:
        return [host for host in self.hosts if host.role == role and not host.reaped.done()]


@asynccontextmanager
async def scripted(
    monkeypatch: pytest.MonkeyPatch, standby: Any, cores: int = ROOM
) -> AsyncIterator[tuple[cb.Device, GatedStarter]]:
    """A device whose first context is ready."""
    starter = GatedStarter()
    monkeypatch.setattr(callboard.system, "starter_for", lambda *_: starter)
    monkeypatch.setattr(standby_module, "cores", lambda: cores)
    monkeypatch.setattr(standby_module, "DELAYS", (0.0,))
    monkeypatch.setattr(standby_module, "STARTING", starter.starting)
    for module in (standby_module, starting):
        monkeypatch.setattr(module, "SETTLE", 0.0)
    async with cb.System("test") as system:
        dev = await system.device("cpu", isolation="process", standby=standby, max_restarts=None, wait=False)
        await turns()
        starter.of("active")[0].ready()
        await turns()
        yield dev, starter


async def turns() -> None:
    for _ in range(25):
        await asyncio.sleep(0)


def counts(dev: cb.Device) -> tuple[int, int]:
    return dev.health().standbys_ready, dev.health().standbys_wanted


async def lose(dev: cb.Device) -> ScriptedHost:
    """Lose the active host; returns the one that follows."""
    host: Any = dev._actor.host
    host.end("killed", "by the test")
    await turns()
    following: Any = dev._actor.host
    return following  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    "standby, kind, wanted",
    [(2, "warm", 2), (("hot", 3), "hot", 3), ("hot", "hot", 1), (0, "", 0), (None, "", 0)],
)
async def test_so_many_are_kept_of_a_kind(monkeypatch: Any, standby: Any, kind: str, wanted: int) -> None:
    async with scripted(monkeypatch, standby) as (dev, starter):
        spares = starter.of("standby")
        assert [spare.hot for spare in spares] == [kind == "hot"] * wanted
        waiting = asyncio.ensure_future(dev.standby_ready())
        for ready, spare in enumerate(spares):
            await turns()
            assert not waiting.done()
            assert counts(dev) == (ready, wanted)
            spare.ready()
        assert await waiting == bool(wanted)
        assert counts(dev) == (wanted, wanted)


async def test_losses_faster_than_a_start_each_find_a_ready_one(monkeypatch: Any) -> None:
    async with scripted(monkeypatch, ("hot", 3)) as (dev, starter):
        first = starter.of("standby")
        for spare in first:
            spare.ready()
        await dev.standby_ready()
        starter.gate.clear()
        taken = [await lose(dev) for _ in range(3)]
        assert taken == first
        assert [host.generation > 0 for host in taken] == [True] * 3
        assert dev.health().state == "ready"  # each time at once
        starter.gate.set()
        await turns()
        assert len(starter.of("standby")) == 3 + 1  # with the one that is active


async def test_the_ready_one_is_taken_before_an_older_one_that_starts(monkeypatch: Any) -> None:
    async with scripted(monkeypatch, ("hot", 2)) as (dev, starter):
        _, younger = starter.of("standby")
        younger.ready()
        await turns()
        assert await lose(dev) is younger


@pytest.mark.parametrize("cores", [1, CORES])
async def test_the_next_one_starts_before_the_takeover_is_done_where_there_are_cores(
    monkeypatch: Any, cores: int
) -> None:
    async with scripted(monkeypatch, "warm", cores) as (dev, starter):
        (spare,) = starter.of("standby")
        spare.ready()
        await turns()
        assert await lose(dev) is spare
        assert dev.health().state == "rebuilding"
        assert len(starter.of("standby")) - 1 == (cores >= CORES)  # the spare counts, it was started as one
        spare.ready()
        await turns()
        assert len(starter.of("standby")) - 1 == 1


async def test_on_few_cores_they_start_one_after_the_other(monkeypatch: Any) -> None:
    async with scripted(monkeypatch, 3, 2) as (dev, starter):
        for started in range(1, 4):
            assert len(starter.of("standby")) == started
            starter.of("standby")[-1].ready()
            await turns()
        assert counts(dev) == (3, 3)


def test_room_for_starts() -> None:
    assert [starts_at_once(cores, calm=True) for cores in (1, 2, 4, 8, 16)] == [1, 1, 1, 2, 4]
    assert [starts_at_once(cores, calm=False) for cores in (1, 2, 4, 8, 16)] == [0, 0, 1, 2, 4]


async def test_one_that_dies_is_replaced_and_the_others_stay(monkeypatch: Any) -> None:
    async with scripted(monkeypatch, 2) as (dev, starter):
        one, other = starter.of("standby")
        one.ready()
        other.ready()
        await turns()
        one.end("killed")
        await turns()
        assert counts(dev) == (1, 2)
        assert len(starter.of("standby")) == 2
        assert await lose(dev) is other


async def test_hot_ones_that_die_twice_are_followed_by_a_warm_one(monkeypatch: Any) -> None:
    async with scripted(monkeypatch, "hot") as (dev, starter):
        for _ in range(2):
            (spare,) = starter.of("standby")
            assert spare.hot
            spare.report(cb.OutOfMemory("of the device"))
            spare.end("exited")
            await turns()
        (spare,) = starter.of("standby")
        assert not spare.hot
        spare.ready()
        await turns()
        assert counts(dev) == (1, 1)
        assert await lose(dev) is spare
        assert starter.of("standby")[-1].hot  # and once more


async def test_closing_while_they_start_leaves_none(monkeypatch: Any) -> None:
    async with scripted(monkeypatch, 2) as (dev, starter):
        starter.of("standby")[0].end("killed")
        starter.gate.clear()
        starter.of("standby")[0].end("killed")
        await turns()
        started = starter.started_late
        await dev.close()
        starter.gate.set()
        await turns()
        assert starter.started_late == started
        assert all(host.reaped.done() for host in starter.hosts)
        assert not [task for task in asyncio.all_tasks() if task.get_name() == "callboard-standby"]


class Model(cb.ResidentActor):
    """An actor for hosts that are scripted."""


async def test_on_few_cores_the_next_one_waits_until_actors_are_set_up(monkeypatch: Any) -> None:
    async with scripted(monkeypatch, "hot", 1) as (dev, starter):
        (spare,) = starter.of("standby")
        spare.ready()
        actor = dev.actor_of(cb.Props(Model))._actor.id
        await turns()
        spare.say(ActorEvent(actor, "prepared"))
        starter.of("active")[0].say(ActorEvent(actor, "ready"))
        await turns()
        assert await lose(dev) is spare
        assert dev.health().state == "ready"
        assert starter.of("standby") == [spare]
        spare.say(ActorEvent(actor, "ready"))
        await turns()
        assert len(starter.of("standby")) - 1 == 1


async def test_on_few_cores_the_next_one_waits_for_other_devices(monkeypatch: Any) -> None:
    async with scripted(monkeypatch, "hot", 1) as (dev, starter):
        (spare,) = starter.of("standby")
        spare.ready()
        await turns()
        starter.starting.note(starter, True)
        assert await lose(dev) is spare
        assert starter.of("standby") == [spare]
        starter.starting.note(starter, False)
        await turns()
        assert len(starter.of("standby")) - 1 == 1


async def test_it_is_calm_some_time_after_what_was_started_last() -> None:
    clock = ManualClock()
    here, one, other = Starting(clock.time), ManualClock(), ManualClock()
    assert here.is_calm
    here.note(one, True)
    here.note(other, True)
    clock.advance(1.0)
    here.note(one, False)
    assert not here.is_calm
    here.note(other, False)
    assert not here.is_calm
    clock.advance(starting.SETTLE)
    assert here.is_calm
    here.note(other, False)  # it had ended
    assert here.is_calm


async def test_what_never_gets_ready_does_not_keep_it_from_being_calm() -> None:
    clock = ManualClock()
    here = Starting(clock.time)
    here.note(clock, True)
    clock.advance(starting.PATIENCE)
    here.note(clock, True)
    assert not here.is_calm
    clock.advance(1.0)
    assert here.is_calm


async def test_one_in_which_an_actor_still_prepares_is_not_ready(monkeypatch: Any) -> None:
    async with scripted(monkeypatch, "hot") as (dev, starter):
        (spare,) = starter.of("standby")
        spare.ready()
        await turns()
        assert counts(dev) == (1, 1)
        actor = dev.actor_of(cb.Props(Model))
        await turns()
        assert counts(dev) == (0, 1)
        spare.say(ActorEvent(actor._actor.id, "prepared"))
        await turns()
        assert counts(dev) == (1, 1)


async def test_an_actor_that_never_prepares_does_not_keep_it_from_being_used(monkeypatch: Any, caplog: Any) -> None:
    async with scripted(monkeypatch, "hot") as (dev, starter):
        monkeypatch.setattr(dev._actor._standby, "_patience", 0.0)
        with caplog.at_level(logging.WARNING):
            dev.actor_of(cb.Props(Model))
            (spare,) = starter.of("standby")
            spare.ready()
            assert await asyncio.wait_for(dev.standby_ready(), 30.0)
        assert "have not prepared" in caplog.text
        assert await lose(dev) is spare
