"""Device arrays of actors in processes of their own: lent for a call, in order with the ops; results are copies."""

import asyncio
import concurrent.futures
import gc
import os
import signal
from collections.abc import AsyncIterator, Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from tests.device.residents.async_lab import Later
from tests.device.residents.lab import Gate
from tests.device.residents.own_lab import Apart
from tests.device.residents.stream_lab import Streamer

import callboard as cb

pytestmark = pytest.mark.leaves_nothing

BOUND = 20.0
"""Seconds for what must come; a failure takes longer."""


async def within(reply: Any) -> Any:
    async with asyncio.timeout(BOUND):
        return await reply


@pytest.fixture
async def dev(backend: str) -> AsyncIterator[cb.Device]:
    async with cb.device(backend, isolation="process", standby=None, close_timeout=5.0) as device:
        yield device


@pytest.mark.few(2)
async def test_calls_take_their_place_among_the_ops(anywhere: cb.Device) -> None:
    apart = anywhere.actor_of(cb.Props(Apart), own_process=True)
    a = np.arange(9, dtype=np.float32).reshape(3, 3)
    x = anywhere.put(a)
    y = anywhere.blas.gemm(x, x)
    apart.call(Apart.fill_twice, y, 1.0)
    apart.call(Apart.fill_twice, y, 2.0)  # of the same array: behind the first
    z = anywhere.blas.gemm(x, y)
    total = apart.call(Apart.total_of, z)
    anywhere.fill(z, 0.0)
    expected = a @ (((a @ a) * 2 + 1) * 2 + 2)
    assert await within(total) == pytest.approx(float(expected.sum()))
    np.testing.assert_array_equal(await within(z.get()), np.zeros((3, 3)))
    assert (await within(anywhere.stats())).parked == 0


@pytest.mark.fault
async def test_a_call_waits_until_its_arrays_are_written() -> None:
    async with cb.device("faulty+cpu?slow_at=2&delay=0.3", isolation="process", standby=None) as dev:
        apart = dev.actor_of(cb.Props(Apart), own_process=True)
        await within(apart.ready())
        x = dev.put(np.full((8, 8), 1.0))
        y = dev.blas.gemm(x, x)  # behind it the stream stands still
        assert await within(apart.call(Apart.total_of, dev.blas.gemm(x, y))) == 8.0**4


@pytest.mark.slow
async def test_a_call_waits_until_what_it_writes_has_been_read(dev: cb.Device) -> None:
    apart = dev.actor_of(cb.Props(Apart), own_process=True)
    await within(apart.ready())
    for _ in range(2):  # ops whose plans are known are launched at once
        x = y = await dev.put(np.eye(700))
        for _ in range(4):  # on the CPU they take longer than the call
            y = dev.blas.gemm(x, y)
        await within(apart.call(Apart.increment, x))
        np.testing.assert_array_equal(await within(y.get()), np.eye(700))
        np.testing.assert_array_equal(await within(x.get()), np.eye(700) + 1)


async def test_views_arrive_as_they_are(dev: cb.Device) -> None:
    apart = dev.actor_of(cb.Props(Apart), own_process=True)
    x = dev.put(np.arange(24.0).reshape(4, 6))
    np.testing.assert_array_equal(
        await within(apart.call(Apart.values, x[1:3, ::-2])), np.arange(24.0).reshape(4, 6)[1:3, ::-2]
    )
    np.testing.assert_array_equal(await within(apart.call(Apart.values, x.T)), np.arange(24.0).reshape(4, 6).T)
    assert (await within(apart.call(Apart.values, x[2:2]))).shape == (0, 6)
    b = dev.put(np.arange(5).astype(ml_dtypes.bfloat16))
    assert (await within(apart.call(Apart.values, b))).dtype == ml_dtypes.bfloat16
    row, column = x[0], x[:, 0]
    await within(apart.call(Apart.add_to_both, row, column))  # they share an element
    expected = np.arange(24.0).reshape(4, 6)
    expected[0] += 1
    expected[:, 0] += 10
    np.testing.assert_array_equal(await within(x.get()), expected)


async def test_what_is_declared_as_read_is_read_along(dev: cb.Device, gates: Callable[[str], Gate]) -> None:
    one, two = (dev.actor_of(cb.Props(Apart), own_process=True) for _ in range(2))
    x = dev.put(np.full(4, 3.0))
    gate = gates("one")
    reading = one.call(Apart.wait_reading, gate.path, x)
    await within(gate.reached())
    assert await within(two.call(Apart.total_of, x)) == 12.0
    filled = dev.fill(x, 1.0)
    other = dev.put(np.full(4, 5.0))
    np.testing.assert_array_equal(await within(other.get()), np.full(4, 5.0))
    assert not filled.done()  # a writer waits for the reader; all else goes on
    await gate.let_through()
    assert await within(reading) == 12.0
    np.testing.assert_array_equal(await within(x.get()), np.ones(4))
    assert await within(one.call(Apart.is_read_only, x))


@pytest.mark.slow
async def test_calls_without_arrays_stay_behind_those_with(dev: cb.Device, gates: Callable[[str], Gate]) -> None:
    beside = dev.actor_of(cb.Props(Apart))
    apart = dev.actor_of(cb.Props(Apart), own_process=True)
    x = dev.put(np.zeros(3))
    gate = gates("held")
    holding = beside.call(Apart.wait_writing, gate.path, x)
    await within(gate.reached())
    first = apart.call(Apart.note_total, x)  # waits for the other actor's call
    second = apart.call(Apart.noted)
    cancelled = apart.call(Apart.fill_twice, x, 7.0)
    assert cancelled.cancel()
    await within(dev.stats())
    assert not first.done()
    assert not second.done()
    await gate.let_through()
    await within(holding)
    await within(first)
    assert await within(second) == [6.0]
    with pytest.raises(cb.Withdrawn):
        await within(cancelled)


@pytest.mark.slow
async def test_async_methods_use_arrays(dev: cb.Device) -> None:
    later = dev.actor_of(cb.Props(Later), own_process=True)
    x, y = dev.put(np.zeros(2)), dev.put(np.zeros(2))
    waiting = later.call(Later.add_later, "a", x)
    assert await within(later.call(Later.add_now, y)) is None
    await within(later.call(Later.open, "a"))
    await within(waiting)
    np.testing.assert_array_equal(await within(x.get()), np.ones(2))
    np.testing.assert_array_equal(await within(y.get()), np.ones(2))


# -- failures ----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
async def test_a_failed_method_spoils_what_it_may_have_written(dev: cb.Device) -> None:
    apart = dev.actor_of(cb.Props(Apart), own_process=True)
    x = dev.put(np.ones(3))
    with pytest.raises(ValueError, match="not spoilt"):
        await within(apart.call(Apart.fail_reading, x))
    np.testing.assert_array_equal(await within(x.get()), np.ones(3))
    with pytest.raises(ValueError, match="spoilt"):
        await within(apart.call(Apart.fail_writing, x))
    with pytest.raises(ValueError, match="spoilt") as caught:
        await within(x.get())
    assert f"made at {__file__}" in "\n".join(caught.value.__notes__)
    with pytest.raises(ValueError, match="spoilt"):  # the root cause, and the actor is not called
        await within(apart.call(Apart.note_total, x))
    assert await within(apart.call(Apart.noted)) == []
    assert await within(dev.fill(x, 2.0).get()) == pytest.approx(np.full(3, 2.0))
    assert await within(apart.call(Apart.total_of, x)) == 6.0
    assert apart.restarts == 0


@pytest.mark.fault
async def test_a_crash_spoils_what_it_may_have_written_and_nothing_else(dev: cb.Device) -> None:
    apart = dev.actor_of(cb.Props(Apart), own_process=True)
    written, read, other = (dev.put(np.full(3, float(n))) for n in range(3))
    lent = await within(apart.call(Apart.make, 4))
    generation = dev.generation
    with pytest.raises(cb.ContextPoisoned, match="exit code 3"):
        await within(apart.call(Apart.exit_with, written, read))
    with pytest.raises(cb.ContextPoisoned, match="exit code 3"):
        await within(written.get())
    for ref, n in ((read, 1.0), (other, 2.0)):
        np.testing.assert_array_equal(await within(ref.get()), np.full(3, n))
    np.testing.assert_array_equal(await within(lent.get()), np.arange(4.0))
    assert await within(apart.call(Apart.total_of, read)) == 3.0
    assert (dev.generation, apart.restarts) == (generation, 1)


@pytest.mark.slow
@pytest.mark.fault
async def test_the_actor_outlives_the_devices_context(dev: cb.Device, gates: Callable[[str], Gate]) -> None:
    apart = dev.actor_of(cb.Props(Apart), own_process=True)
    assert await within(apart.call(Apart.add, 5)) == 5
    x = dev.put(np.ones(3))
    gate = gates("running")
    running = apart.call(Apart.wait_reading, gate.path, x)
    await within(gate.reached())
    since = dev.watch_generation().value
    host = dev.health().host_pid
    assert host is not None
    os.kill(host, signal.SIGKILL)
    with pytest.raises(cb.ContextPoisoned):
        await within(running)
    await within(dev.watch_generation().changed(since))
    with pytest.raises(cb.GpuRefStale):
        apart.call(Apart.total_of, x)
    await gate.let_through()
    assert await within(apart.call(Apart.add, 1)) == 6
    assert await within(apart.call(Apart.total_of, dev.put(np.ones(3)))) == 3.0
    assert apart.restarts == 0


# -- results -----------------------------------------------------------------------------------------------------------


async def test_results_are_copies_on_the_device(dev: cb.Device) -> None:
    apart = dev.actor_of(cb.Props(Apart), own_process=True)
    before = (await within(dev.stats())).buffers
    ref = await within(apart.call(Apart.make, 5))
    twice = dev.blas.axpy(ref, dev.copy(ref), alpha=1.0)
    np.testing.assert_array_equal(await within(twice.get()), np.arange(5.0) * 2)
    await within(apart.call(Apart.change_made))
    np.testing.assert_array_equal(await within(ref.get()), np.arange(5.0))
    same, transposed, empty = await within(apart.call(Apart.make_some))
    np.testing.assert_array_equal(await within(same[0].get()), np.arange(6.0).reshape(2, 3))
    assert same[0].allocation is same[1].allocation
    np.testing.assert_array_equal(await within(transposed.get()), np.arange(6.0).reshape(2, 3).T)
    assert empty.shape == (0, 3)
    del ref, twice, same, transposed, empty
    gc.collect()
    async with asyncio.timeout(BOUND):
        while (await dev.stats()).buffers != before or (await dev.stats()).staged_bytes:
            pass


@pytest.mark.slow
async def test_a_result_has_room_while_later_calls_and_fences_wait_for_the_call(
    dev: cb.Device, gates: Callable[[str], Gate]
) -> None:
    apart, gate = dev.actor_of(cb.Props(Apart), own_process=True), gates("gate")
    x = dev.put(np.arange(5.0))
    made = apart.call(Apart.make_when_let, gate.path, x)
    await within(gate.reached())
    changed = apart.call(Apart.increment, x)  # of the same array, of the same actor
    with dev.time() as took:  # a fence behind it
        after = dev.copy(x)
    await within(dev.stats())  # all of that has arrived
    await gate.let_through()
    np.testing.assert_array_equal(await within((await within(made)).get()), np.arange(5.0))
    await within(changed)
    np.testing.assert_array_equal(await within(after.get()), np.arange(5.0) + 1)
    assert await within(took) >= 0.0


@pytest.mark.slow
async def test_a_result_for_which_the_device_has_no_room_is_an_answer(backend: str) -> None:
    async with cb.device(backend, isolation="process", standby=None, memory_limit=1 << 20) as dev:
        apart = dev.actor_of(cb.Props(Apart), own_process=True)
        with pytest.raises(cb.OutOfMemory, match="memory_limit"):
            await within(apart.call(Apart.make, 1 << 20))
        assert (await within(apart.call(Apart.make, 4))).shape == (4,)


# -- refusals and threads ----------------------------------------------------------------------------------------------


async def test_what_cannot_be_lent_is_refused_by_name(dev: cb.Device) -> None:
    apart = dev.actor_of(cb.Props(Apart), own_process=True)
    x = dev.put(np.ones(3))
    x.free()
    with pytest.raises(cb.GpuRefStale, match=r"total_of: array f64\[3\] .*freed"):
        apart.call(Apart.total_of, x)
    streamer = dev.actor_of(cb.Props(Streamer), own_process=True)
    with pytest.raises(TypeError, match="GpuRef"):
        streamer.stream(Streamer.count, dev.put(np.ones(3)))  # type: ignore[arg-type]


@pytest.mark.slow
async def test_threads_call_with_the_same_array(dev: cb.Device) -> None:
    one, two = (dev.actor_of(cb.Props(Apart), own_process=True) for _ in range(2))
    x = dev.put(np.zeros(3))

    def call(actor: Any) -> None:
        for reply in [actor.call(Apart.increment, x) for _ in range(20)]:
            reply.result(BOUND)

    with concurrent.futures.ThreadPoolExecutor() as pool:
        loop = asyncio.get_running_loop()
        await within(asyncio.gather(*(loop.run_in_executor(pool, call, actor) for actor in (one, two, one, two))))
    np.testing.assert_array_equal(await within(x.get()), np.full(3, 80.0))
