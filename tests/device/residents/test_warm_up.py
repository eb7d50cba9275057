"""``warm_up``: a hot standby does in advance what a first call loads; the actor's state is built by ``setup`` alone."""

import asyncio
import os
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.device.residents.lab import Gate
from tests.device.residents.warm_lab import AsyncWarm, FailingWarm, Warm, noted

import callboard as cb
from callboard.device.host.residents.rehearsal import Rehearsals
from callboard.device.protocol.messages import ActorEvent

pytestmark = pytest.mark.leaves_nothing

BOUND = 60.0
"""Seconds for what must come; a failure takes longer."""


async def within(reply: Any) -> Any:
    async with asyncio.timeout(BOUND):
        return await reply


async def pid_after(kill: int, actor: cb.ResidentRef[Warm]) -> int:
    """The process in which the actor answers after this one was killed."""
    os.kill(kill, signal.SIGKILL)
    async with asyncio.timeout(BOUND):
        while True:
            try:
                pid = await actor.call(Warm.pid)
            except cb.ContextLost:
                continue
            if pid != kill:
                return pid


async def test_it_runs_in_each_hot_standby_and_leaves_nothing_in_the_instance(tmp_path: Path) -> None:
    log = tmp_path / "log"
    async with cb.device("cpu", isolation="process", standby=("hot", 2), max_restarts=None) as dev:
        actor = dev.actor_of(cb.Props(Warm, str(log)))
        first = await within(actor.call(Warm.pid))
        assert noted(log, first) == ["prepare", "setup True True"]
        assert await within(dev.standby_ready())
        spares = {host.pid for host in dev._actor._standby.hosts}
        for spare in spares:
            assert noted(log, spare) == ["prepare", "prepare", "setup True False", "warmed up"]
        second = await pid_after(first, actor)
        third = await pid_after(second, actor)
        assert {second, third} == spares
        for spare in spares:
            assert noted(log, spare)[4:] == ["setup True True"]


@pytest.mark.slow
async def test_one_that_fails_and_one_that_is_async(tmp_path: Path, caplog: Any) -> None:
    failing, later = tmp_path / "failing", tmp_path / "later"
    async with cb.device("cpu", isolation="process", standby="hot") as dev:
        actor = dev.actor_of(cb.Props(FailingWarm, str(failing)))
        other = dev.actor_of(cb.Props(AsyncWarm, str(later)))
        first = await within(actor.call(Warm.pid))
        assert await within(dev.standby_ready())
        (spare,) = dev._actor._standby.hosts
        assert noted(failing, spare.pid)[2:] == ["fails"]
        assert noted(later, spare.pid)[2:] == ["warmed up 2"]
        assert await pid_after(first, actor) == await within(other.call(Warm.pid)) == spare.pid
        failed = (
            "resident actor failingwarm-1: warm_up failed in the standby, which is used all the same: ValueError: no"
        )
        assert failed in caplog.text


@pytest.mark.slow
async def test_a_takeover_does_not_wait_for_it(tmp_path: Path, gate: Gate) -> None:
    log = tmp_path / "log"
    async with cb.device("cpu", isolation="process", standby="hot") as dev:
        actor = dev.actor_of(cb.Props(Warm, str(log), gate.path))
        first = await within(actor.call(Warm.pid))
        await within(gate.reached())
        (spare,) = dev._actor._standby.hosts
        assert (dev.health().standbys_ready, dev.health().standbys_wanted) == (0, 1)
        assert await pid_after(first, actor) == spare.pid
        assert "warmed up" not in noted(log, spare.pid)
        gate.open_for_good()


@pytest.mark.slow
async def test_a_process_of_an_actors_own_has_standbys(tmp_path: Path) -> None:
    log = tmp_path / "log"
    async with cb.device("cpu", isolation="process", standby=None) as dev:
        with pytest.raises(ValueError, match=r"standby = 1 is of an actor with own_process=True"):
            dev.actor_of(cb.Props(Warm, str(log)), standby=1)
        wrong: Any = "hott"
        with pytest.raises(ValueError, match=r"standby = 'hott': use one of 'hot', 'warm'"):
            dev.actor_of(cb.Props(Warm, str(log)), own_process=True, standby=wrong)
        apart = dev.actor_of(cb.Props(Warm, str(log)), own_process=True, standby="hot")
        first = await within(apart.call(Warm.pid))
        assert await within(dev.standby_ready())
        assert (dev.health().standbys_ready, dev.health().standbys_wanted) == (1, 1)
        after = await pid_after(first, apart)
        assert noted(log, after) == ["prepare", "prepare", "setup True False", "warmed up", "setup True True"]
        assert dev.health().restarts == 0


def test_it_is_left_out_where_memory_is_short() -> None:
    sent: list[Any] = []
    host: Any = SimpleNamespace(channel=SimpleNamespace(send=sent.append))
    context: Any = SimpleNamespace(device=SimpleNamespace(use=lambda: None, memory_info=lambda: (9, 100)))
    actor: Any = SimpleNamespace(id=7, name="model", rehearses=True, stopping=False)
    rehearsals = Rehearsals(host)
    rehearsals.prepared(actor)  # before it is known what the host is
    assert sent == []
    rehearsals.begin(context)
    assert sent == [ActorEvent(7, "prepared")]
    rehearsals.begin(None)  # a warm standby, or one that has taken over
    rehearsals.prepared(actor)
    assert sent == 2 * [ActorEvent(7, "prepared")]
    assert rehearsals.ended
