"""Calls on the thread that serves the host: an actor that is called alone, with short calls, leads.

``Probe.place`` tells in every isolation whether a call ran there; without that, no test here could fail.
"""

import asyncio
import contextlib
import os
import signal
import threading
from collections.abc import Callable
from typing import Any
from unittest import mock

import numpy as np
import pytest
from tests.device.probes import EVENTS, ProbeBackend
from tests.device.probes import Add as AddOp
from tests.device.residents.lab import Gate, OwnError, Probe, Restarting

import callboard as cb
from callboard.actors.errors import ActorStopped
from callboard.core import registry
from callboard.device.host.helm import Helm
from callboard.device.host.residents.actors import HostActors
from callboard.device.host.residents.thread import leading as leading_module

pytestmark = pytest.mark.leaves_nothing

TIME = 20.0


async def leading(*actors: "cb.ResidentRef[Probe]") -> None:
    """Each of them has led; the last one leads when this returns."""
    async with asyncio.timeout(TIME):
        for actor in actors:
            while not (await actor.call(Probe.place))[1]:
                pass


async def bounded(*replies: Any) -> list[Any]:
    async with asyncio.timeout(TIME):
        return list(await asyncio.gather(*replies))


async def test_the_helm_is_passed_to_an_actor_that_is_called_alone() -> None:
    with mock.patch.object(Helm, "pass_to", autospec=True, side_effect=Helm.pass_to) as passed:
        async with cb.device("cpu", isolation="thread") as dev:
            probe = dev.actor_of(cb.Props(Probe))
            await leading(probe)
            assert await probe.call(Probe.add, 1) == 1
        assert passed.call_count >= 1


async def test_all_calls_run_on_the_actors_own_thread(dev: cb.Device) -> None:
    probe = dev.actor_of(cb.Props(Probe))
    places = [await probe.call(Probe.place)]
    async with asyncio.timeout(TIME):
        while not places[-1][1]:
            places.append(await probe.call(Probe.place))
    places += await bounded(*(probe.call(Probe.place) for _ in range(50)))
    assert {leads for _, leads in places} == {False, True}
    assert len({ident for ident, _ in places}) == 1
    assert places[0][0] != threading.get_ident()


async def test_one_that_blocks_stops_neither_ops_nor_other_actors(dev: cb.Device, gates: Callable[[str], Gate]) -> None:
    probe, other = dev.actor_of(cb.Props(Probe)), dev.actor_of(cb.Props(Probe))
    x = dev.full(4, 2.0, "f64")
    for name in ("first", "second"):
        gate = gates(name)
        await leading(probe)
        blocked = probe.call(Probe.wait, gate.path)
        behind = probe.call(Probe.add, 1)
        async with asyncio.timeout(TIME):
            await gate.reached()
            np.testing.assert_array_equal(await dev.copy(x).get(), np.full(4, 2.0))
            assert await other.call(Probe.total_of, x) == 8.0
            for _ in range(20):
                assert await other.call(Probe.total_of, x) == 8.0
        assert not blocked.done()
        assert not behind.done()
        await gate.let_through()
        await bounded(blocked, behind)


@pytest.mark.slow
async def test_one_that_blocks_beside_a_leading_actor_that_blocks_as_well(
    dev: cb.Device, gates: Callable[[str], Gate]
) -> None:
    one, two = gates("one"), gates("two")
    probe, other = dev.actor_of(cb.Props(Probe)), dev.actor_of(cb.Props(Probe))
    x = dev.full(4, 2.0, "f64")
    await leading(other)
    await leading(probe)
    replies = [probe.call(Probe.wait, one.path), other.call(Probe.wait, two.path)]
    async with asyncio.timeout(TIME):
        await one.reached()
        await two.reached()
        np.testing.assert_array_equal(await dev.copy(x).get(), np.full(4, 2.0))
    await one.let_through()
    await two.let_through()
    await bounded(*replies)
    await leading(other, probe)


async def test_two_actors_called_alternately_lead_in_turn(dev: cb.Device) -> None:
    actors = [dev.actor_of(cb.Props(Probe)) for _ in range(2)]
    led = [0, 0]
    async with asyncio.timeout(TIME):
        while min(led) < 5:
            for i in range(2):
                led[i] += (await actors[i].call(Probe.place))[1]
        for n in range(1, 101):
            for actor in actors:
                assert await actor.call(Probe.add, 1) == n
    together = await bounded(*(actors[n % 2].call(Probe.add, 1) for n in range(100)))
    assert together == [101 + n // 2 for n in range(100)]


async def test_two_hundred_calls_at_once_with_ops_among_them(dev: cb.Device) -> None:
    probe = dev.actor_of(cb.Props(Probe))
    x = dev.zeros(4, "f64")
    await leading(probe)
    replies: list[Any] = []
    for i in range(200):
        if i % 5 == 0:
            probe.call(Probe.increment, x)
            replies.append(dev.copy(x).get())
        else:
            replies.append(probe.call(Probe.add, 1))
    results = await bounded(*replies)
    for i in range(200):
        if i % 5 == 0:
            np.testing.assert_array_equal(results[i], np.full(4, i // 5 + 1.0))
    assert [r for i, r in enumerate(results) if i % 5] == list(range(1, 161))
    await leading(probe)


async def test_calls_and_ops_in_turn_on_one_array(dev: cb.Device) -> None:
    probe = dev.actor_of(cb.Props(Probe))
    x = dev.zeros(4, "f64")
    await leading(probe)
    for n in range(1, 51):
        probe.call(Probe.increment, x)
        assert await probe.call(Probe.total_of, dev.copy(x)) == 4.0 * n


async def test_ops_that_had_to_wait_make_calls_go_to_other_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leading_module, "NOTICED", -1.0)  # every call is noticed
    with mock.patch.object(HostActors, "crowd", autospec=True, side_effect=HostActors.crowd) as crowd:
        async with cb.device("cpu", isolation="thread") as dev:
            probe = dev.actor_of(cb.Props(Probe))
            x = dev.zeros(4, "f64")
            await leading(probe)
            async with asyncio.timeout(TIME):
                while not crowd.called:
                    await asyncio.gather(probe.call(Probe.place), dev.copy(x))
            places = [await probe.call(Probe.place) for _ in range(50)]
            assert [leads for _, leads in places] == [False] * 50
            await leading(probe)


async def test_exceptions_as_answers(dev: cb.Device) -> None:
    probe = dev.actor_of(cb.Props(Probe, 5))
    for how, kind in (("value", ValueError), ("own", OwnError), ("key", KeyError), ("answer", cb.ReplyError)):
        await leading(probe)
        replies = [probe.call(Probe.add, 1), probe.call(Probe.fail, how), probe.call(Probe.add, -1)]
        assert await replies[0] == 6
        with pytest.raises(kind):
            await replies[1]
        assert await replies[2] == 5
    assert await probe.call(Probe.state) == (5, 1, 1)
    with pytest.raises(TypeError, match="result"):
        await probe.call(Probe.unknown)
    await leading(probe)


async def test_a_restart(dev: cb.Device) -> None:
    probe = dev.actor_of(cb.Props(Restarting, 5))
    for _ in range(2):
        await leading(probe)
        assert await probe.call(Probe.add, 1) == 6
        with pytest.raises(ValueError, match="no"):
            await probe.call(Probe.fail, "value")
        assert await probe.call(Probe.state) == (5, 1, 1)
    await leading(probe)


async def test_a_stop(dev: cb.Device) -> None:
    other = dev.actor_of(cb.Props(Probe))
    x = dev.full(4, 2.0, "f64")
    for wait in (False, True):
        probe = dev.actor_of(cb.Props(Probe))
        await leading(probe)
        if wait:
            async with asyncio.timeout(TIME):
                await probe.stop_and_wait()
        else:
            probe.stop()
        with pytest.raises(ActorStopped):
            await probe.call(Probe.add, 1)
        np.testing.assert_array_equal(await dev.copy(x).get(), np.full(4, 2.0))
        await leading(other)


class Stopping(Probe):
    """Has itself stopped in the middle of a call."""

    def __init__(self, stop: Callable[[], None]) -> None:
        super().__init__()
        self.stop = stop

    def ask(self) -> None:
        self.stop()


async def test_calls_behind_a_stop_do_not_run() -> None:
    loop = asyncio.get_running_loop()
    asked = threading.Event()
    ran: list[int] = []

    def on_loop() -> None:
        probe.stop()
        asked.set()

    def stop() -> None:
        loop.call_soon_threadsafe(on_loop)
        assert asked.wait(TIME)

    with mock.patch.object(Stopping, "add", autospec=True, side_effect=lambda self, n: ran.append(n)):
        async with cb.device("cpu", isolation="thread") as dev:
            probe = dev.actor_of(cb.Props(Stopping, stop))
            await leading(probe)
            asking = probe.call(Stopping.ask)
            behind = [probe.call(Probe.add, n) for n in range(3)]
            await asking
            for reply in behind:
                with pytest.raises(ActorStopped):
                    await reply
    assert ran == []


@pytest.mark.slow
async def test_closing_the_device(isolation: Any) -> None:
    async with cb.device("cpu", isolation=isolation, standby=None, close_timeout=TIME) as dev:
        probe = dev.actor_of(cb.Props(Probe))
        await leading(probe)
    async with cb.device("cpu", isolation=isolation, standby=None, close_timeout=TIME) as dev:
        probe = dev.actor_of(cb.Props(Probe))
        await leading(probe)
        replies = [probe.call(Probe.add, 1) for _ in range(20)]
    results = await asyncio.gather(*replies, return_exceptions=True)
    done = [r for r in results if isinstance(r, int)]
    assert done == list(range(1, len(done) + 1))
    assert all(isinstance(r, cb.AccelError | ActorStopped) for r in results[len(done) :])


@pytest.mark.few(1)
@pytest.mark.fault
@pytest.mark.parametrize("blocked", [False, True])
async def test_the_host_is_killed(gate: Gate, blocked: bool) -> None:
    async with cb.device("cpu", isolation="process", standby=None) as dev:
        probe = dev.actor_of(cb.Props(Probe, 10))
        await leading(probe)
        generation = dev.watch_generation()
        since = generation.value
        running = probe.call(Probe.wait, gate.path) if blocked else None
        async with asyncio.timeout(TIME):
            if running is not None:
                await gate.reached()
            pid = dev.health().host_pid
            assert pid is not None
            os.kill(pid, signal.SIGKILL)
            if running is not None:
                with pytest.raises(cb.ContextPoisoned):
                    await running
            await generation.changed(since)
            with contextlib.suppress(cb.ContextLost):  # it was sent before the end was noticed
                await probe.call(Probe.add, 0)
            assert await probe.call(Probe.add, 1) == 11
        await leading(probe)


async def test_a_call_on_what_a_failed_call_has_written(dev: cb.Device) -> None:
    probe, other = dev.actor_of(cb.Props(Probe)), dev.actor_of(cb.Props(Probe))
    x = dev.zeros(3, "f64")
    for _ in range(3):
        await leading(probe)
        failed = other.call(Probe.fail_with, x)
        reading = probe.call(Probe.total_of, x)
        for reply in (failed, reading):
            with pytest.raises(ValueError, match="spoilt"):
                await reply
        dev.fill(x, 1.0)
        assert await probe.call(Probe.total_of, x) == 3.0
    assert await probe.call(Probe.state) == (0, 1, 1)


async def test_a_call_that_reads_the_result_of_an_op_that_fails_meanwhile() -> None:
    EVENTS.clear()
    undo = registry.register("probe", ProbeBackend())
    try:
        async with cb.System("test") as system:
            dev = await system.device("probe")
            probe = dev.actor_of(cb.Props(Probe))
            x = dev.put(np.ones(4, np.float32))
            await leading(probe)
            bad = dev.ask(AddOp(x=x, error="library", after="go"))
            replies = [probe.call(Probe.fail_reading, bad), probe.call(Probe.increment, bad)]
            await dev.stats()
            EVENTS["go"].set()
            for reply in (bad, *replies):
                with pytest.raises(cb.LibraryError, match="the library said no"):
                    await reply
            assert await probe.call(Probe.state) == (0, 1, 1)
            await leading(probe)
    finally:
        for event in EVENTS.values():
            event.set()
        undo()


@pytest.mark.slow
async def test_results_of_all_sizes(dev: cb.Device) -> None:
    probe = dev.actor_of(cb.Props(Probe))
    rng = np.random.default_rng(3)
    kib = (64, 0, 128, 1, 512, 2, 1024, 64, 5000, 1, 5000, 64, 0, 1, 6000, 0)
    arrays = [rng.integers(0, 255, n << 10, np.uint8) for n in kib]
    for array in arrays:
        await leading(probe)
        np.testing.assert_array_equal(await probe.call(Probe.echo, array), array)
    await leading(probe)
    results = await bounded(*(probe.call(Probe.echo, array) for array in arrays * 2))
    for array, result in zip(arrays * 2, results, strict=True):
        np.testing.assert_array_equal(result, array)
    for _ in range(20):
        assert await probe.call(Probe.add, 0) == 0
    await leading(probe)
    async with asyncio.timeout(TIME):
        while (await dev.stats()).staged_bytes:
            await probe.call(Probe.add, 0)


class Large(Probe):
    """Its results are large."""

    def zeros(self, nbytes: int) -> Any:
        return np.zeros(nbytes, np.uint8)


@pytest.mark.slow
async def test_memory_asked_for_while_the_leading_actor_blocks(dev: cb.Device, gates: Callable[[str], Gate]) -> None:
    probe, other = dev.actor_of(cb.Props(Probe)), dev.actor_of(cb.Props(Large))
    for n in range(1, 11):
        gate = gates(f"gate{n}")
        await leading(probe)
        large = other.call(Large.zeros, n * 10_000)  # more than the one before: memory is asked for
        blocked = probe.call(Probe.wait, gate.path)
        async with asyncio.timeout(TIME):
            assert (await large).nbytes == n * 10_000
            assert not blocked.done()
            await gate.let_through()
            await blocked


@pytest.mark.slow
async def test_a_call_with_an_array_that_a_call_of_another_actor_holds(
    dev: cb.Device, gates: Callable[[str], Gate]
) -> None:
    probe, other = dev.actor_of(cb.Props(Probe)), dev.actor_of(cb.Props(Probe))
    x = dev.zeros(4, "f64")
    for n in (1.0, 2.0, 3.0):
        gate = gates(f"gate{n}")
        await leading(probe)
        holding = other.call(Probe.wait, gate.path, x)
        waiting = probe.call(Probe.total_of, x)
        copy = dev.copy(x)
        async with asyncio.timeout(TIME):
            await gate.reached()
            assert (await dev.stats()).parked >= 1
            assert not waiting.done()
            await gate.let_through()
            assert await waiting == 4.0 * n
            await holding
        np.testing.assert_array_equal(await copy.get(), np.full(4, n))


async def test_what_is_parked_behind_a_call_of_the_leading_actor(dev: cb.Device) -> None:
    probe, other = dev.actor_of(cb.Props(Probe)), dev.actor_of(cb.Props(Probe))
    x = dev.zeros(4, "f64")
    await leading(probe)
    totals = []
    for _ in range(100):
        probe.call(Probe.increment, x)
        totals.append(other.call(Probe.total_of, x))
    assert await bounded(*totals) == [4.0 * n for n in range(1, 101)]
    await leading(probe, other)
