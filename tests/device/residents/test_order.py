"""Calls in the one order: reads, holds, writes and pending results; device arrays in and out."""

import asyncio
import gc
from collections.abc import Callable

import numpy as np
import pytest
from tests.device.probes import EVENTS, ProbeBackend
from tests.device.probes import Add as AddOp
from tests.device.residents.lab import Gate, Probe

import callboard as cb
from callboard.core import registry
from callboard.device.host.context.admission import Admission
from callboard.device.host.context.libraries import LibraryActor
from callboard.device.host.context.plans.plan import Plan
from callboard.device.protocol.messages import Call

pytestmark = pytest.mark.leaves_nothing

BOUND = 20.0


async def test_a_device_array_arrives_as_a_view_and_later_ops_see_what_the_call_wrote(dev: cb.Device) -> None:
    probe = dev.actor_of(cb.Props(Probe))
    x = dev.zeros(5, "f64")
    probe.call(Probe.increment, x)
    y = dev.copy(x)
    probe.call(Probe.increment, x[1:3], by=10.0)
    np.testing.assert_array_equal(await x.get(), [1, 11, 11, 1, 1])
    np.testing.assert_array_equal(await y.get(), np.ones(5))
    assert await probe.call(Probe.total_of, x) == 25.0
    assert await probe.call(Probe.is_read_only, x)


async def test_ops_on_a_held_array_park_and_others_go_on(dev: cb.Device, gate: Gate) -> None:
    probe = dev.actor_of(cb.Props(Probe))
    x, other = dev.zeros(4, "f64"), dev.full(4, 2.0, "f64")
    call = probe.call(Probe.wait, gate.path, x, by=5.0)
    seen = dev.copy(x)
    dev.fill(x, 100.0)
    np.testing.assert_array_equal(await dev.copy(other).get(), np.full(4, 2.0))
    assert not call.done()
    assert not seen.done()
    assert (await dev.stats()).parked >= 2
    x.free()  # it is the call's as long as that runs
    await gate.let_through()
    np.testing.assert_array_equal(await seen.get(), np.full(4, 5.0))
    await call


async def test_memory_ops_that_are_prepared_and_parked_delay_no_others(
    gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a GPU, copies of strided arrays and fills are compiled when they are first called."""
    needs_helper = LibraryActor.needs_helper

    def of_memory(self: LibraryActor, plan: Plan) -> bool | None:
        return plan.tag in {"memory.copy", "memory.fill"} or needs_helper(self, plan)

    monkeypatch.setattr(LibraryActor, "needs_helper", of_memory)
    async with cb.device("cpu", isolation="thread") as dev:
        probe = dev.actor_of(cb.Props(Probe))
        x, other = dev.zeros(4, "f64"), dev.full(4, 2.0, "f64")
        call = probe.call(Probe.wait, gate.path, x, by=5.0)
        seen = dev.copy(x)
        dev.fill(x, 100.0)  # behind the copy as well as the call
        np.testing.assert_array_equal(await dev.copy(other).get(), np.full(4, 2.0))
        assert not seen.done()
        await gate.let_through()
        np.testing.assert_array_equal(await seen.get(), np.full(4, 5.0))
        np.testing.assert_array_equal(await x.get(), np.full(4, 100.0))
        await call


async def test_ends_of_other_calls_do_not_touch_what_is_parked(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = 0
    poll = Admission._look

    def counted(self: Admission, call: Call) -> None:
        nonlocal looks
        looks += 1
        poll(self, call)

    monkeypatch.setattr(Admission, "_look", counted)
    async with cb.device("cpu", isolation="thread") as dev:
        probe, other = dev.actor_of(cb.Props(Probe)), dev.actor_of(cb.Props(Probe))
        x, y = dev.zeros(4, "f64"), dev.full(4, 1.0, "f64")
        call = probe.call(Probe.wait, gate.path, x, by=5.0)
        await gate.reached()
        parked = [dev.copy(x) for _ in range(500)]
        await dev.stats()
        before = looks
        for _ in range(50):
            assert await other.call(Probe.total_of, y) == 4.0
        assert (await dev.stats()).parked == 500
        assert looks == before
        await gate.let_through()
        await call
        np.testing.assert_array_equal(await parked[-1].get(), np.full(4, 5.0))
        assert looks - before <= 520  # one each, and a few of the get


async def test_readers_share_an_array(dev: cb.Device, gates: Callable[[str], Gate]) -> None:
    first, second = dev.actor_of(cb.Props(Probe)), dev.actor_of(cb.Props(Probe))
    gate = gates("one")
    x = dev.full(4, 2.0, "f64")
    writing = first.call(Probe.wait, gate.path, x)
    blocked = second.call(Probe.total_of, x)
    read = second.call(Probe.total_of, dev.full(4, 1.0, "f64"))
    await dev.stats()
    assert not blocked.done()
    assert not read.done()  # calls of one actor keep their order
    await gate.let_through()
    assert await blocked == 12.0
    assert await read == 4.0
    await writing


@pytest.mark.slow
async def test_many_calls_of_one_actor_on_one_array(dev: cb.Device) -> None:
    probe = dev.actor_of(cb.Props(Probe))
    x = dev.zeros(3, "f64")
    for _ in range(500):
        probe.call(Probe.increment, x)
    np.testing.assert_array_equal(await x.get(), np.full(3, 500.0))


async def test_two_actors_take_turns_on_one_array(dev: cb.Device) -> None:
    a, b = dev.actor_of(cb.Props(Probe)), dev.actor_of(cb.Props(Probe))
    x = dev.zeros(3, "f64")
    for i in range(100):
        (a, b)[i % 2].call(Probe.increment, x)
        dev.ask(cb_double(x))
    expected = 0.0
    for _ in range(100):
        expected = (expected + 1) * 0.5
    np.testing.assert_allclose(await x.get(), np.full(3, expected))


def cb_double(x: cb.GpuRef) -> "cb.Op[object, cb.GpuRef]":
    from callboard.kernel.blas import Scal

    return Scal(x=x, alpha=0.5)


async def test_an_adopted_array_is_the_actors_own_memory(dev: cb.Device) -> None:
    probe = dev.actor_of(cb.Props(Probe))
    ref = await probe.call(Probe.make, 6)
    assert ref.done()
    assert ref.shape == (6,)
    np.testing.assert_array_equal(await ref.get(), np.arange(6))
    dev.fill(ref[2:], 0.0)
    await ref.get()
    assert await probe.call(Probe.own_total) == 1.0
    b = dev.blas.gemm(ref.reshape(2, 3), ref.reshape(3, 2))
    assert b.shape == (2, 2)
    await b
    await probe.call(Probe.drop_own)
    np.testing.assert_array_equal(await ref.get(), [0, 1, 0, 0, 0, 0])


@pytest.mark.slow
async def test_an_adopted_array_that_is_given_again_is_freed_when_all_are_gone(dev: cb.Device) -> None:
    probe = dev.actor_of(cb.Props(Probe))
    ref = await probe.call(Probe.make, 6)
    again = await probe.call(Probe.lend_again)
    assert (await dev.stats()).buffers == 1
    assert again[0].allocation is ref.allocation
    del ref
    gc.collect()
    np.testing.assert_array_equal(await again[1].get(), np.arange(6))
    del again
    gc.collect()
    await dev.drain()
    async with asyncio.timeout(BOUND):
        while (await dev.stats()).buffers:
            pass
    once_more = await probe.call(Probe.lend_again)
    np.testing.assert_array_equal(await once_more[0].get(), np.arange(6))
    once_more[0].free()
    with pytest.raises(cb.GpuRefStale, match="freed"):
        once_more[1].get()


@pytest.mark.slow
async def test_a_result_that_nobody_takes_frees_its_arrays(dev: cb.Device) -> None:
    probe = dev.actor_of(cb.Props(Probe))
    probe.call(Probe.make, 6)
    await probe.call(Probe.add, 1)
    gc.collect()
    async with asyncio.timeout(BOUND):
        while (await dev.stats()).buffers:
            pass


async def test_a_callers_array_cannot_be_adopted(dev: cb.Device) -> None:
    probe = dev.actor_of(cb.Props(Probe))
    x = dev.zeros(5)
    with pytest.raises(ValueError, match="memory is the caller's"):
        await probe.call(Probe.lend_argument, x)


async def test_refs_that_cannot_be_used_are_refused_by_name(dev: cb.Device) -> None:
    probe = dev.actor_of(cb.Props(Probe), name="probe")
    x = dev.zeros(5)
    view = x[1:]
    x.free()
    text = rf"probe.increment: array f32\[4\] on {dev.backend}:0: freed; use it before free"
    with pytest.raises(cb.GpuRefStale, match=text):
        probe.call(Probe.increment, view)
    async with cb.device("cpu", isolation="thread") as other:
        foreign = other.zeros(3)
        with pytest.raises(cb.DeviceMismatch, match=r"probe.total_of: array f32\[3\] is on .*copy it through the host"):
            probe.call(Probe.total_of, foreign)
    async with cb.device(dev.backend, isolation="thread") as again:
        with pytest.raises(cb.DeviceMismatch, match=r"is on another handle of .*:0, opened separately, the actor"):
            probe.call(Probe.total_of, again.zeros(3))


async def test_a_failed_call_fails_for_the_readers_of_what_it_may_have_written(dev: cb.Device) -> None:
    probe = dev.actor_of(cb.Props(Probe))
    x, y = dev.zeros(3, "f64"), dev.zeros(3, "f64")
    failed = probe.call(Probe.fail_with, x)
    late = dev.copy(x)
    second = probe.call(Probe.increment, x)  # of the same actor: it is admitted meanwhile, and must not run
    for reply in (failed, late, second):
        with pytest.raises(ValueError, match="spoilt"):
            await reply
    dev.fill(x, 1.0)
    np.testing.assert_array_equal(await x.get(), np.ones(3))
    with pytest.raises(ValueError, match="not spoilt"):
        await probe.call(Probe.fail_reading, y)
    np.testing.assert_array_equal(await y.get(), np.zeros(3))


# -- with a library whose ops fail and wait: thread isolation, for the test holds its events ---------------------------


@pytest.fixture
async def slow_dev() -> "object":
    EVENTS.clear()
    undo = registry.register("probe", ProbeBackend())
    async with cb.System("test") as system:
        yield await system.device("probe")
        for event in EVENTS.values():
            event.set()
    undo()


async def test_a_call_waits_for_the_op_whose_result_it_reads(slow_dev: cb.Device) -> None:
    probe = slow_dev.actor_of(cb.Props(Probe))
    x = slow_dev.put(np.ones(4, np.float32))
    y = slow_dev.ask(AddOp(x=x, after="go"))
    total = probe.call(Probe.total_of, y)
    await slow_dev.stats()
    assert not total.done()
    EVENTS["go"].set()
    assert await total == 8.0


async def test_a_call_parks_behind_an_op_that_is_parked(slow_dev: cb.Device) -> None:
    from tests.device.probes import Slow

    probe, other = slow_dev.actor_of(cb.Props(Probe)), slow_dev.actor_of(cb.Props(Probe))
    x = slow_dev.put(np.ones(4, np.float32))
    y = slow_dev.ask(Slow(x=x, plan="ready"))
    total = probe.call(Probe.total_of, y)
    behind = probe.call(Probe.add, 1)
    assert await other.call(Probe.add, 1) == 1
    assert (await slow_dev.stats()).parked >= 3
    assert not behind.done()
    EVENTS["ready"].set()
    assert await total == 8.0
    assert await behind == 1


async def test_a_call_on_a_failed_array_fails_with_the_root_cause_and_does_not_run(slow_dev: cb.Device) -> None:
    probe = slow_dev.actor_of(cb.Props(Probe))
    x = slow_dev.put(np.ones(4, np.float32))
    bad = slow_dev.ask(AddOp(x=x, error="library", after="go"))
    early = probe.call(Probe.fail_reading, bad)  # starts before the failure is known, and fails of it
    EVENTS["go"].set()
    with pytest.raises(cb.LibraryError, match="the library said no") as caught:
        await early
    assert any("an operand depends on op" in note for note in caught.value.__notes__)
    with pytest.raises(cb.LibraryError):
        await bad
    with pytest.raises(cb.LibraryError):
        await probe.call(Probe.increment, bad)
    assert await probe.call(Probe.state) == (0, 1, 1)  # nothing was its own fault
    assert probe.restarts == 0
