"""Cancelled calls: those that have not begun are not run, those that run are told."""

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any
from unittest import mock

import numpy as np
import pytest
from tests.device.residents.lab import Gate, Probe, wait_at
from tests.device.residents.test_calls import settled

import callboard as cb
from callboard.device.host.residents import item
from callboard.device.host.residents.actors import HostActors
from callboard.device.host.residents.thread.thread import ActorThread

pytestmark = [pytest.mark.leaves_nothing]

BOUND = 20.0


class Watching(Probe):
    """Notes what becomes of its calls."""

    max_in_flight = 4

    def watch(self, gate: str) -> list[bool]:
        """Whether it is cancelled, before and behind a gate; afterwards, all answers are kept."""
        found = [self.ctx.cancelled()]
        wait_at(gate)
        found.append(self.ctx.cancelled())
        self.notes.append(f"watched {found[-1]}")
        return found

    def until_cancelled(self, gate: str) -> int:
        """Look until it is cancelled."""
        wait_at(gate)
        until = time.monotonic() + BOUND
        while not self.ctx.cancelled():
            if time.monotonic() > until:
                raise TimeoutError("it was never cancelled")
        self.notes.append("saw it")
        return 1


class Newest(Watching):
    max_in_flight = 3
    overflow = "drop_old"


async def test_a_call_that_waits_and_is_cancelled_is_not_run(dev: cb.Device, gate: Gate) -> None:
    probe = dev.actor_of(cb.Props(Watching))
    running = probe.call(Watching.wait, gate.path)
    await gate.reached()
    doomed, kept = probe.call(Watching.add, 1), probe.call(Watching.add, 10)
    assert doomed.cancel()
    with pytest.raises(cb.Withdrawn):  # before the running call has ended
        await asyncio.wait_for(doomed, BOUND)
    assert not doomed.cancel()
    await gate.let_through()
    await running
    assert await kept == 10
    assert probe.in_flight == 0


async def test_a_call_that_is_cancelled_as_its_actor_takes_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    taken, told = threading.Event(), threading.Event()
    outcome, cancel = ActorThread.outcome, HostActors._cancel

    def held(self: ActorThread, item: item.Item, *arguments: Any) -> Any:
        taken.set()
        assert told.wait(BOUND)
        return outcome(self, item, *arguments)

    def telling(self: HostActors, *arguments: Any) -> None:
        cancel(self, *arguments)
        told.set()

    async with cb.device("cpu", isolation="thread", close_timeout=5.0) as dev:
        probe = await dev.actor_of(cb.Props(Watching)).ready()
        monkeypatch.setattr(ActorThread, "outcome", held)
        monkeypatch.setattr(HostActors, "_cancel", telling)
        doomed = probe.call(Watching.add, 1)
        assert await asyncio.to_thread(taken.wait, BOUND)
        assert doomed.cancel()
        with pytest.raises(cb.Withdrawn, match="the call was cancelled"):
            await asyncio.wait_for(doomed, BOUND)
        monkeypatch.undo()
        assert await probe.call(Watching.add, 10) == 10


async def test_a_call_that_runs_is_told(dev: cb.Device, gate: Gate) -> None:
    probe = dev.actor_of(cb.Props(Watching))
    running = probe.call(Watching.watch, gate.path)
    await gate.reached()
    assert running.cancel()
    await dev.stats()  # the host has heard it
    await gate.let_through()
    assert await running == [False, True]
    assert await probe.call(Watching.noted) == ["watched True"]


@pytest.mark.slow
async def test_a_call_that_is_short_by_experience_is_told(dev: cb.Device, gate: Gate) -> None:
    probe = dev.actor_of(cb.Props(Watching))
    for _ in range(5):
        await probe.call(Watching.add, 1)
    running = probe.call(Watching.until_cancelled, gate.path)
    await gate.let_through()
    running.cancel()
    assert await asyncio.wait_for(running, BOUND) == 1


async def test_the_call_of_a_cancelled_task_is_cancelled(dev: cb.Device, gate: Gate) -> None:
    probe = dev.actor_of(cb.Props(Watching))
    running = probe.call(Watching.wait, gate.path)
    await gate.reached()

    async def asks() -> int:
        return await probe.call(Watching.add, 1)

    task = asyncio.ensure_future(asks())
    await asyncio.sleep(0)
    shared = probe.call(Watching.add, 5)
    one = asyncio.ensure_future(asyncio.wait_for(shared, BOUND))
    other = asyncio.ensure_future(asyncio.wait_for(shared, BOUND))
    await asyncio.sleep(0)
    for cancelled in (task, one):
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
    await dev.stats()  # the host has heard of it
    await gate.let_through()
    await running
    assert await other == 5  # somebody else awaited it; the first was not run


async def test_timed_out_calls_are_not_run(dev: cb.Device, gate: Gate) -> None:
    probe = dev.actor_of(cb.Props(Watching))
    running = probe.call(Watching.wait, gate.path)
    await gate.reached()
    brief = probe.with_timeout(0.01)
    for _ in range(10):
        with pytest.raises(cb.AskTimeout, match="is cancelled"):
            await brief.call(Watching.add, 1)
        async with asyncio.timeout(BOUND):
            while probe.in_flight > 1:  # until its host has answered, it takes a place of the few
                await dev.stats()
    await gate.let_through()
    await running
    assert await probe.call(Watching.add, 0) == 0


async def test_a_running_call_sees_that_its_time_is_over(gate: Gate) -> None:
    async with cb.device("cpu", isolation="thread", standby=None) as dev:
        probe = dev.actor_of(cb.Props(Watching))
        running = probe.with_timeout(1000.0).call(Watching.watch, gate.path)
        await gate.reached()
        with mock.patch.object(item, "time", mock.Mock(monotonic=lambda: time.monotonic() + 2000.0)):
            await gate.let_through()
            assert await running == [False, True]


async def test_a_time_limit_that_passes_cancels_the_call(dev: cb.Device, gate: Gate) -> None:
    probe = dev.actor_of(cb.Props(Watching))
    running = probe.call(Watching.watch, gate.path)
    await gate.reached()
    end = next(iter(dev._actor.residents.caller._flying.values()))
    end.expire(5.0, "watch")
    with pytest.raises(cb.AskTimeout, match="no answer within 5 s"):
        await running
    await dev.stats()
    await gate.let_through()
    assert await probe.call(Watching.noted) == ["watched True"]


async def test_no_call_begins_behind_its_deadline() -> None:
    """Even if nobody has cancelled it: the host looks at the clock."""
    async with cb.device("cpu", isolation="thread", standby=None) as dev:
        probe = dev.actor_of(cb.Props(Probe))
        await probe.call(Probe.add, 1)
        with mock.patch.object(item, "time", mock.Mock(monotonic=lambda: time.monotonic() + 100.0)):
            with pytest.raises(cb.AskTimeout, match="before it began"):
                await probe.with_timeout(50.0).call(Probe.add, 1)
            assert await probe.call(Probe.add, 1) == 2  # without a deadline


async def test_what_a_cancelled_call_would_have_written_fails_for_its_readers(dev: cb.Device, gate: Gate) -> None:
    probe = dev.actor_of(cb.Props(Watching))
    x = dev.put(np.zeros(4, np.float32))
    running = probe.call(Watching.wait, gate.path)
    await gate.reached()
    doomed = probe.call(Watching.increment, x)
    reader = dev.copy(x).get()
    doomed.cancel()
    with pytest.raises(cb.Withdrawn):
        await doomed
    with pytest.raises(cb.Withdrawn):
        await reader
    await gate.let_through()
    await running
    assert await settled(dev) == 0


async def test_a_parked_call_can_be_cancelled(dev: cb.Device, gates: Callable[[str], Gate]) -> None:
    first, second = dev.actor_of(cb.Props(Watching)), dev.actor_of(cb.Props(Watching))
    gate = gates("held")
    x = dev.put(np.zeros(4, np.float32))
    holding = first.call(Watching.wait, gate.path, x)
    await gate.reached()
    parked = second.call(Watching.increment, x, 100.0)  # waits for the first, which holds its array
    await dev.stats()
    parked.cancel()
    await dev.stats()  # behind the cancellation, which must not arrive after the end of the first
    await gate.let_through()
    await holding
    with pytest.raises(cb.Withdrawn):
        await parked
    assert await second.call(Watching.add, 1) == 1


@pytest.mark.slow
async def test_the_oldest_call_makes_room_for_the_newest(dev: cb.Device, gate: Gate) -> None:
    newest = dev.actor_of(cb.Props(Newest))
    running = newest.call(Newest.wait, gate.path)
    await gate.reached()
    calls = [newest.call(Newest.add, 1 << n) for n in range(6)]  # two may wait
    for dropped in calls[:4]:
        with pytest.raises(cb.MailboxFull, match="newer call"):
            await dropped
    await gate.let_through()
    await running
    assert [await kept for kept in calls[4:]] == [16, 48]


async def test_a_full_queue_refuses_by_default(dev: cb.Device, gate: Gate) -> None:
    probe = dev.actor_of(cb.Props(Watching))
    running = probe.call(Watching.wait, gate.path)
    waiting = [probe.call(Watching.add, 1) for _ in range(3)]
    with pytest.raises(cb.MailboxFull, match="max_in_flight"):
        probe.call(Watching.add, 1)
    waiting[0].cancel()
    with pytest.raises(cb.Withdrawn):
        await waiting[0]
    again = probe.call(Watching.add, 1)
    await gate.let_through()
    await running
    assert await again == 3


async def test_an_unsent_call_is_withdrawn() -> None:
    async with cb.device("cpu", isolation="thread", standby=None) as dev:
        probe = dev.actor_of(cb.Props(Probe))
        reply = probe.call(Probe.add, 1)
        reply.cancel()
        with pytest.raises(cb.Withdrawn):
            await reply
        assert await probe.call(Probe.add, 1) == 1
