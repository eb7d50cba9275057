"""Streams whose generators read arrays of the device."""

import asyncio

import numpy as np
import pytest
from tests.device.residents.stream_lab import Streamer

import callboard as cb

pytestmark = pytest.mark.leaves_nothing

SOON = 20.0


@pytest.fixture
def actor(dev: cb.Device) -> cb.ResidentRef[Streamer]:
    return dev.actor_of(cb.Props(Streamer), name="streamer")


async def test_a_generator_reads_an_array_in_order_with_what_writes_it(
    dev: cb.Device, actor: cb.ResidentRef[Streamer]
) -> None:
    x = dev.full(4, 1.0, "f64")
    found = []
    async with actor.stream(Streamer.sums, x, 100).with_prefetch(0) as stream:
        async for item in stream:
            found.append(item)
            if len(found) == 5:
                break
            dev.fill(x, float(len(found) + 1))
    assert found == [4.0, 8.0, 12.0, 16.0, 20.0]
    await actor.call(Streamer.state)
    np.testing.assert_array_equal(await x.get(), np.full(4, 5.0))  # items that were asked for ahead spoil nothing
    dev.fill(x, 3.0)
    assert [item async for item in actor.stream(Streamer.sums, x, 3)] == [12.0] * 3


async def test_a_generator_keeps_its_array_until_it_has_ended(dev: cb.Device, actor: cb.ResidentRef[Streamer]) -> None:
    stream = actor.stream(Streamer.sums, dev.full(100_000, 1.0, "f64"), 3).with_prefetch(0)
    assert await anext(stream) == 100_000.0
    for _ in range(5):  # this memory would be used again
        assert (await dev.full(100_000, 2.0, "f64").get())[0] == 2.0
    assert await anext(stream) == 100_000.0
    await stream.aclose()
    _, notes = await actor.call(Streamer.state)
    assert notes[-1] == "sum 100000.0"
    async with asyncio.timeout(SOON):
        while (await dev.stats()).buffers:
            pass


async def test_an_array_that_is_freed_ends_the_stream(dev: cb.Device, actor: cb.ResidentRef[Streamer]) -> None:
    x = dev.full(4, 1.0, "f64")
    stream = actor.stream(Streamer.sums, x, 3).with_prefetch(0)
    assert await anext(stream) == 4.0
    x.free()
    with pytest.raises(cb.GpuRefStale, match="sums: array"):
        await anext(stream)
    async with asyncio.timeout(SOON):
        while await actor.call(Streamer.open_streams):
            pass


@pytest.mark.slow
async def test_a_generator_whose_array_is_spoilt_is_closed(dev: cb.Device, actor: cb.ResidentRef[Streamer]) -> None:
    x = dev.full((2, 2), 1.0, "f64")
    stream = actor.stream(Streamer.sums, x, 3).with_prefetch(0)
    assert await anext(stream) == 4.0
    dev.solver.cholesky(dev.full((2, 2), -1.0, "f64"), out=x)
    with pytest.raises(cb.AccelError, match="cholesky"):
        await anext(stream)
    async with asyncio.timeout(SOON):
        while await actor.call(Streamer.open_streams):
            pass


@pytest.mark.slow
async def test_a_generator_in_a_process_of_its_own_gets_no_ref(backend: str) -> None:
    async with cb.device(backend, isolation="process", standby=None, close_timeout=5.0) as dev:
        apart = dev.actor_of(cb.Props(Streamer), own_process=True)
        with pytest.raises(TypeError, match=r"sums: array has a GpuRef, .* pass a NumPy array"):
            apart.stream(Streamer.sums, dev.zeros(3), 2)
