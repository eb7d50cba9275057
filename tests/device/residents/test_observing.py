"""Resident actors in ``health()``, ``stats()`` and traces of a device, in every place."""

import asyncio
import itertools
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tests.device.residents.lab import Add, Brief, Gate, Probe, Restarting

import callboard as cb
from callboard.actors.errors import ActorStopped
from callboard.device.client.residents.registry import MAX_GIVEN_UP
from callboard.device.host.residents.busytime import BusyTime
from callboard.telemetry.sampling.devices import MEASURED

pytestmark = pytest.mark.leaves_nothing

SOON = 20.0


def made_by_a_function() -> Probe:
    return Probe(7)


class NeverUp(Brief):
    """Its setup fails."""

    def setup(self, ctx: cb.HostContext) -> None:
        raise LookupError("no weights")


def test_busy_time_is_that_between_begin_and_end() -> None:
    now = 10.0
    busy = BusyTime(lambda: now)
    assert busy.seconds == 0.0
    assert busy.begin() == 10.0
    now = 13.0
    assert busy.seconds == 3.0  # of a call that runs
    assert busy.end() == 13.0
    now = 20.0
    assert busy.seconds == 3.0
    busy.begin()
    now = 21.5
    busy.end()
    assert busy.seconds == 4.5


async def test_stats_count_the_calls_of_each_actor(anywhere: cb.Device, gate: Gate) -> None:
    probe = anywhere.actor_of(cb.Props(Probe), name="probe")
    other = anywhere.actor_of(cb.Props(made_by_a_function), name="other")
    for _ in range(3):
        await probe.call(Probe.add, 1)
    with pytest.raises(ValueError, match="no"):
        await probe.call(Probe.fail, "value")
    await other.ready(timeout=SOON)
    waiting = probe.call(Probe.wait, gate.path)
    await gate.reached()
    queued = probe.call(Probe.add, 1)
    residents = (await anywhere.stats()).residents
    figures = residents["probe"]
    assert (figures.completed, figures.failed, figures.in_flight, figures.restarts) == (3, 1, 2, 0)
    assert (str(figures.state), figures.actor, figures.error) == ("ready", "Probe", None)
    later = (await anywhere.stats()).residents["probe"].busy
    assert 0.0 < figures.busy <= later  # the call that runs counts
    assert residents["other"].busy == 0.0
    assert (residents["other"].actor, residents["other"].completed) == ("made_by_a_function", 0)
    await gate.let_through()
    await waiting
    await queued
    idle = (await anywhere.stats()).residents["probe"]
    assert (idle.completed, idle.in_flight) == (5, 0)
    assert idle.busy == (await anywhere.stats()).residents["probe"].busy
    await probe.stop_and_wait(timeout=SOON)
    assert set((await anywhere.stats()).residents) == {"other"}


async def test_health_says_what_each_actor_is_doing(anywhere: cb.Device) -> None:
    assert anywhere.health().residents == {}
    probe = anywhere.actor_of(cb.Props(Probe), name="probe")
    assert anywhere.health().residents == {"probe": "starting"}
    never = anywhere.actor_of(cb.Props(NeverUp), name="never")
    await probe.ready(timeout=SOON)
    with pytest.raises(ActorStopped):
        await never.ready(timeout=SOON)
    health = anywhere.health()
    assert health.residents == {"probe": "ready", "never": "stopped"}  # one that gave up stays in sight
    assert health.ok
    given_up = (await anywhere.stats()).residents["never"]
    assert (str(given_up.state), given_up.error) == ("stopped", "LookupError: no weights")
    again = anywhere.actor_of(cb.Props(Probe), name="never")
    await again.ready(timeout=SOON)
    assert anywhere.health().residents == {"probe": "ready", "never": "ready"}
    await again.stop_and_wait(timeout=SOON)  # it was told to
    assert anywhere.health().residents == {"probe": "ready"}


async def test_restarts_are_counted(anywhere: cb.Device) -> None:
    actor = anywhere.actor_of(cb.Props(Restarting), name="actor")
    with pytest.raises(ValueError, match="no"):
        await actor.call(Probe.fail, "value")
    assert await actor.call(Probe.add, 1) == 1  # by the next instance
    figures = (await anywhere.stats()).residents["actor"]
    async with asyncio.timeout(SOON):
        while figures.restarts == 0:
            figures = (await anywhere.stats()).residents["actor"]
    assert (figures.restarts, figures.completed, figures.failed) == (1, 1, 1)


async def test_only_the_last_that_gave_up_are_kept(tmp_path: Path) -> None:
    async with cb.device("cpu", isolation="thread") as dev:
        residents = dev._actor.residents
        actor = dev.actor_of(cb.Props(NeverUp))
        with pytest.raises(ActorStopped):
            await actor.ready(timeout=SOON)
        for n in range(MAX_GIVEN_UP + 3):
            actor._actor.name = f"never-{n}"
            residents.forget(actor._actor)
        assert list(dev.health().residents) == [f"never-{n}" for n in range(3, MAX_GIVEN_UP + 3)]


async def test_a_trace_has_the_calls(anywhere: cb.Device) -> None:
    records: list[cb.TraceRecord] = []
    probe = anywhere.actor_of(cb.Props(Probe), name="probe")
    await probe.call(Probe.add, 1)  # before the trace
    remove = await anywhere.trace(records.append)
    x = anywhere.put(np.ones(3, np.float32))
    assert await probe.call(Probe.total_of, anywhere.blas.scal(x, alpha=2.0)) == 6.0
    assert await probe.ask(Add(n=1)) == 2
    with pytest.raises(ValueError, match="no"):
        await probe.call(Probe.fail, "value")
    lent = await probe.call(Probe.make, 2)
    await until(anywhere, records, "actor:probe.make")
    calls = [record for record in records if record.tag.startswith("actor:")]
    assert [(record.tag, record.ok) for record in calls] == [
        ("actor:probe.total_of", True),
        ("actor:probe.Add", True),
        ("actor:probe.fail", False),
        ("actor:probe.make", True),
    ]
    for record in records:
        assert record.began <= record.enqueued <= record.completed
    for before, after in itertools.pairwise(calls):
        assert before.enqueued <= after.began  # one after the other, on the thread of the actor
    assert len({record.stream for record in calls}) == 1
    assert len({record.op for record in records}) == len(records)
    (product,) = [record for record in records if record.tag == "blas.scal"]
    assert product.stream != calls[0].stream
    assert product.began <= calls[0].began
    await remove()
    records.clear()
    await probe.call(Probe.add, 1)
    await anywhere.stats()
    assert records == []
    del lent


async def test_a_call_that_never_ran_has_no_record(anywhere: cb.Device, gates: Callable[[str], Gate]) -> None:
    records: list[cb.TraceRecord] = []
    probe = anywhere.actor_of(cb.Props(Probe), name="probe")
    await anywhere.trace(records.append)
    gate = gates("gate")
    running = probe.call(Probe.wait, gate.path)
    await gate.reached()
    queued = probe.call(Probe.add, 1)
    await anywhere.stats()
    probe.stop()
    await anywhere.stats()  # the host has been told before the method returns
    await gate.let_through()
    await running
    with pytest.raises(ActorStopped):
        await queued
    await until(anywhere, records, "actor:probe.wait")
    assert [record.tag for record in records] == ["actor:probe.wait"]


async def test_a_call_takes_the_time_between_begin_and_end_of_its_method(anywhere: cb.Device, gate: Gate) -> None:
    records: list[cb.TraceRecord] = []
    probe = anywhere.actor_of(cb.Props(Probe), name="probe")
    await anywhere.trace(records.append)
    async with anywhere.profile() as profile:
        waiting = probe.call(Probe.wait, gate.path)
        await gate.reached()
        inside = time.monotonic()
        await anywhere.stats()
        within = time.monotonic() - inside
        await gate.let_through()
        await waiting
    [record] = [record for record in records if record.tag == "actor:probe.wait"]
    assert record.started == record.began
    assert within <= record.seconds <= record.completed - record.began
    [cost] = [cost for cost in profile.ops if cost.op == "actor:probe.wait"]
    assert (cost.calls, cost.seconds, cost.longest) == (1, record.seconds, record.seconds)
    assert cost.launching == 0.0


async def test_one_call_in_so_many_is_measured_without_a_trace(isolation: str) -> None:
    calls = 2 * MEASURED + 1
    async with cb.System("measured") as system:
        telemetry = cb.observe(system)
        device = await system.device("cpu", isolation=isolation, standby=None)
        probe = device.actor_of(cb.Props(Probe), name="probe")
        await probe.ready(timeout=SOON)
        for _ in range(calls):  # one after the other: they come and go by the shortcut
            await probe.call(Probe.add, 1)
        await device.stats()  # the records have come
        telemetry.flush()
        [figures] = telemetry.sample().devices
        add = figures.ops["probe.add"]
        assert (add.submitted, add.measured) == (calls, 3)
        assert add.seconds > 0.0


async def until(dev: cb.Device, records: list[cb.TraceRecord], tag: str) -> None:
    """The record has come."""
    async with asyncio.timeout(SOON):
        while not any(record.tag == tag for record in records):
            await dev.stats()
