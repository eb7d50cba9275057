"""Calls that are refused before they begin: what they would have written fails for later readers, and for no others."""

import asyncio
import threading
import time
from typing import Any
from unittest import mock

import numpy as np
import pytest
from tests.device.residents.conftest import PLACES
from tests.device.residents.lab import Gate, Probe
from tests.device.residents.test_calls import settled

import callboard as cb
from callboard.actors.errors import ActorStopped
from callboard.device.host.residents import item
from callboard.device.host.residents.actors import HostActors

pytestmark = pytest.mark.leaves_nothing

BOUND = 20.0


async def failure(reply: Any) -> Exception | None:
    """The error of a reply; None if it has none."""
    try:
        async with asyncio.timeout(BOUND):
            await reply
    except (cb.AccelError, ActorStopped) as e:
        return e
    return None


@pytest.mark.few(1)
@pytest.mark.parametrize("how", ["stop", "cancel"])
async def test_a_refused_call_spoils_an_array_in_program_order(dev: cb.Device, gate: Gate, how: str) -> None:
    holder, other = dev.actor_of(cb.Props(Probe)), dev.actor_of(cb.Props(Probe))
    await other.ready()
    x = dev.zeros(4, "f64")
    holding = holder.call(Probe.wait, gate.path, x)
    before = dev.copy(x)  # waits for the call
    filled = dev.fill(x, 5.0)
    refused = other.call(Probe.increment, x)
    behind = dev.copy(x)
    if how == "stop":
        other.stop()  # before the calls have been sent
    else:
        refused.cancel()
    await dev.stats()
    await gate.let_through()
    assert await failure(holding) is None
    np.testing.assert_array_equal(await before.get(), np.full(4, 1.0))
    assert await failure(filled) is None
    kind = ActorStopped if how == "stop" else cb.Withdrawn
    for reply in (refused, behind):
        assert isinstance(await failure(reply), kind)
    dev.fill(x, 7.0)
    np.testing.assert_array_equal(await dev.copy(x).get(), np.full(4, 7.0))


@pytest.mark.parametrize("place", PLACES)
async def test_a_call_whose_time_is_over_is_told_so(place: str, gate: Gate) -> None:
    """Also where the host is on the loop's thread, and hears at once that the call is cancelled."""
    async with cb.device("cpu", **PLACES[place]) as dev:
        probe = dev.actor_of(cb.Props(Probe))
        running = probe.call(Probe.wait, gate.path)
        await gate.reached()
        for _ in range(5):
            timed = probe.with_timeout(100.0).call(Probe.add, 1)
            await dev.stats()  # the host has it
            next(end for end in dev._actor.residents.caller.flying.values() if end.id == timed._op).expire(100.0, "add")
            assert isinstance(await failure(timed), cb.AskTimeout)
        await dev.stats()  # it has heard that they are cancelled
        await gate.let_through()
        assert await failure(running) is None
        assert await probe.call(Probe.add, 0) == 0


async def test_the_arrays_of_a_call_that_is_not_begun_are_given_back() -> None:
    async with cb.device("cpu", isolation="thread") as dev:
        probe = dev.actor_of(cb.Props(Probe))
        array = np.zeros(100_000)
        with mock.patch.object(item, "time", mock.Mock(monotonic=lambda: time.monotonic() + 100.0)):
            with pytest.raises(cb.AskTimeout, match="before it began"):
                await probe.with_timeout(50.0).call(Probe.keep, array)
        assert await settled(dev) == 0


async def test_a_call_behind_one_that_was_too_late_is_not_begun(monkeypatch: pytest.MonkeyPatch, gate: Gate) -> None:
    """Although the host has not heard yet that the first was not."""
    held: list[Any] = []
    post = HostActors.post_ended

    def post_both(self: HostActors, ended: Any) -> None:
        if ended.item.method == "wait":
            post(self, ended)
        else:
            held.append(ended)
        if len(held) == 2:
            for one in held:
                post(self, one)

    monkeypatch.setattr(HostActors, "post_ended", post_both)
    async with cb.device("cpu", isolation="thread") as dev:
        probe = dev.actor_of(cb.Props(Probe))
        x = dev.zeros(4, "f64")
        running = probe.call(Probe.wait, gate.path)
        await gate.reached()
        late = probe.with_timeout(50.0).call(Probe.increment, x)
        behind = probe.call(Probe.increment, x)
        await dev.stats()
        with mock.patch.object(item, "time", mock.Mock(monotonic=lambda: time.monotonic() + 100.0)):
            await gate.let_through()
            assert await failure(running) is None
            for reply in (late, behind):
                assert isinstance(await failure(reply), cb.AskTimeout)
    assert [one.item.began for one in held] == [0.0, 0.0]


async def test_a_call_behind_one_that_is_being_cancelled_is_not_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    """Although the first one's failure is not noted yet."""
    go, through = threading.Event(), threading.Event()
    ends: list[Any] = []
    post, refuse = HostActors.post_ended, HostActors._refuse

    def post_ended(self: HostActors, ended: Any) -> None:
        ends.append(ended)
        if len(ends) == 2:
            through.set()
        post(self, ended)

    def refuse_late(self: HostActors, *arguments: Any) -> None:
        go.set()
        assert through.wait(BOUND)
        refuse(self, *arguments)

    class Waiting(Probe):
        def until(self) -> None:
            assert go.wait(BOUND)

    monkeypatch.setattr(HostActors, "post_ended", post_ended)
    monkeypatch.setattr(HostActors, "_refuse", refuse_late)
    async with cb.device("cpu", isolation="thread") as dev:
        probe = dev.actor_of(cb.Props(Waiting))
        x = dev.zeros(4, "f64")
        running = probe.call(Waiting.until)
        cancelled, behind = probe.call(Probe.increment, x), probe.call(Probe.increment, x)
        await dev.stats()
        cancelled.cancel()
        assert await failure(running) is None
        for reply in (cancelled, behind):
            assert isinstance(await failure(reply), cb.Withdrawn)
    assert ends[1].item.began == 0.0
