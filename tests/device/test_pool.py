"""The pool of device memory: statistics, trimming, and changing limits."""

from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest

import callboard as cb
from callboard.device.host.context.blocks import size_class
from callboard.testing.faulty import FaultyBackend

pytestmark = [pytest.mark.leaves_nothing]

MIB = 1 << 20


@pytest.fixture(params=["thread", "process"])
async def dev(request: pytest.FixtureRequest) -> AsyncIterator[cb.Device]:
    async with cb.device("cpu", isolation=request.param, standby=None) as opened:
        yield opened


async def test_what_is_held_is_told_block_by_block(dev: cb.Device) -> None:
    a, b, c = dev.zeros(1000), dev.zeros(1000), dev.zeros(300_000)
    await dev.drain()
    stats = await dev.pool_stats()
    small, large = size_class(4000), size_class(1_200_000)
    assert [(k.block_bytes, k.in_use, k.cached) for k in stats.classes] == [(small, 2, 0), (large, 1, 0)]
    assert stats.asked_bytes == 8000 + 1_200_000
    assert stats.used_bytes == stats.reserved_bytes == stats.peak_bytes == 2 * small + large
    assert stats.rounding == pytest.approx(1 - stats.asked_bytes / stats.used_bytes)
    assert (stats.hits, stats.misses, stats.cached_bytes, stats.fragmentation) == (0, 3, 0, 0.0)
    del a, c
    stats = await dev.pool_stats()
    assert [(k.block_bytes, k.in_use, k.cached) for k in stats.classes] == [(small, 1, 1), (large, 0, 1)]
    assert stats.cached_bytes == small + large
    assert stats.fragmentation == pytest.approx(small / (small + large))
    c = dev.zeros(299_990)
    stats = await dev.pool_stats()
    assert (stats.hits, stats.misses) == (1, 3)
    assert stats.limit_bytes is None
    assert 0 < stats.free_bytes <= stats.total_bytes
    del b, c


async def test_trimming_keeps_what_it_is_told_to(dev: cb.Device) -> None:
    refs = [dev.zeros(n * 100_000, "u8") for n in (1, 1, 5, 20)]
    await dev.drain()
    small = size_class(100_000)
    refs.clear()
    await dev.trim(keep_bytes=small + 1)
    stats = await dev.pool_stats()
    assert [(k.block_bytes, k.cached) for k in stats.classes] == [(small, 1)], "the largest go first"
    assert stats.trimmed_bytes == small + size_class(500_000) + size_class(2_000_000)
    await dev.trim()
    assert (await dev.pool_stats()).classes == []
    with pytest.raises(ValueError, match="keep_bytes is -1"):
        await dev.trim(keep_bytes=-1)


async def test_a_limit_can_be_changed(dev: cb.Device) -> None:
    await dev.zeros(MIB, "u8")
    await dev.set_memory_limit(2 * MIB)
    kept = await dev.zeros(MIB, "u8")
    with pytest.raises(cb.OutOfMemory, match="memory_limit is 2,097,152"):
        await dev.zeros(2 * MIB, "u8")
    assert (await dev.pool_stats()).limit_bytes == 2 * MIB
    await dev.set_memory_limit(None)
    await dev.zeros(2 * MIB, "u8")
    await dev.set_memory_limit(1)  # what is in use stays
    np.testing.assert_array_equal(await kept.get(), np.zeros(MIB))
    assert (await dev.pool_stats()).cached_bytes == 0
    with pytest.raises(ValueError, match="nbytes is 0"):
        await dev.set_memory_limit(0)


@pytest.mark.slow
@pytest.mark.parametrize("standby", [pytest.param(None, marks=pytest.mark.slow), "hot"])
async def test_a_changed_limit_holds_in_later_contexts(tmp_path: Path, standby: str | None) -> None:
    backend = FaultyBackend("cpu", poison_at=3, once=str(tmp_path / "once"))
    async with cb.device(backend.spec, isolation="process", standby=standby) as dev:  # type: ignore[arg-type]
        await dev.standby_ready()
        await dev.set_memory_limit(MIB)
        with pytest.raises(cb.ContextLost):
            await dev.zeros(8), await dev.zeros(8)
        with pytest.raises(cb.OutOfMemory, match="memory_limit is 1,048,576"):
            await dev.zeros(2 * MIB, "u8")


def test_the_blocking_twins() -> None:
    with cb.sync.device("cpu") as dev:
        a = dev.zeros(100)
        a.result()
        assert dev.pool_stats().used_bytes == 512
        dev.set_memory_limit(MIB)
        with pytest.raises(cb.OutOfMemory):
            dev.zeros(MIB).result()
        del a
        dev.trim(keep_bytes=0)
        assert dev.pool_stats().limit_bytes == MIB
