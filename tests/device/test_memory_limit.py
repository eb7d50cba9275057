"""Out of memory: typed, raised to the affected op only, and only after unused memory has been given back."""

import asyncio
import gc
import logging
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any

import numpy as np
import pytest
from tests.device import steps
from tests.device.probes import EVENTS, Add, ProbeBackend

import callboard as cb
from callboard.core import registry
from callboard.device.client.line.copying import Copier
from callboard.device.protocol.messages import Flush

pytestmark = pytest.mark.leaves_nothing

BOUND = 20.0
MB = 1 << 20
LIMIT = 8 * MB


@pytest.fixture(params=["thread", "process"])
async def dev(request: pytest.FixtureRequest) -> AsyncIterator[cb.Device]:
    """8 MiB of device memory."""
    async with cb.device("cpu", isolation=request.param, standby=None, memory_limit=LIMIT) as device:
        yield device


def block(dev: cb.Device, mb: int, value: float = 1.0) -> cb.GpuRef:
    return dev.full((mb * MB // 4,), value)


async def total(ref: cb.GpuRef) -> float:
    async with asyncio.timeout(BOUND):
        return float((await ref.get()).sum()) / (MB // 4)


async def test_too_much_fails_typed_and_nothing_else_does(dev: cb.Device) -> None:
    kept = block(dev, 5)
    refused = block(dev, 4)
    reader = dev.copy(refused)
    fitting = block(dev, 2, 3.0)
    for reply in (refused, reader):
        with pytest.raises(cb.OutOfMemory, match=r"4,194,304 bytes requested, .* memory_limit is 8,388,608") as caught:
            async with asyncio.timeout(BOUND):
                await reply
        assert isinstance(caught.value, MemoryError)
    assert await total(fitting) == 6
    assert await total(kept) == 5
    assert dev.health().restarts == 0
    stats = await dev.stats()
    assert stats.parked == 0
    # One op had no room; the one that was to fill its array, and the reader, failed from it.
    assert (stats.allocations, stats.out_of_memory, stats.failed) == (2, 1, 3)


async def test_what_a_caller_has_caught_is_not_logged(dev: cb.Device, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR, "callboard"):
        with pytest.raises(cb.OutOfMemory):
            async with asyncio.timeout(BOUND):
                await (dev.np.ones((2 * MB,)) * 2).sum().get()  # three ops: the last one is awaited
        gc.collect()
        await dev.stats()
        await asyncio.sleep(0)
    assert not [r for r in caplog.records if "was not awaited" in r.message]


async def test_refs_dropped_behind_the_call_are_sent_and_make_room(dev: cb.Device) -> None:
    """Nothing but the flush can know of them: the release is behind the op in the application."""
    for value in range(1, 6):
        old = block(dev, 5)
        new = block(dev, 5, float(value))  # does not fit beside the old one
        after = block(dev, 1, 2.0)
        del old
        assert await total(new) == 5 * value
        assert await total(after) == 2
        del new, after
    assert (await dev.stats()).used_bytes <= LIMIT


async def test_what_waits_for_memory_keeps_its_order(dev: cb.Device) -> None:
    old = block(dev, 5)
    small = block(dev, 1, 0.0)
    new = block(dev, 5, 7.0)
    for value in range(20):
        dev.fill(small, float(value))
    seen = dev.copy(small)
    dev.fill(small, 99.0)
    del old
    assert await total(seen) == 19
    assert await total(small) == 99
    assert await total(new) == 35


async def test_memory_comes_back_after_many_refusals(dev: cb.Device) -> None:
    kept = block(dev, 5)
    for _ in range(20):
        with pytest.raises(cb.OutOfMemory):
            async with asyncio.timeout(BOUND):
                await block(dev, 4)
    await kept
    del kept
    gc.collect()
    assert await total(block(dev, 7)) == 7


async def test_releases_behind_an_array_that_is_still_being_copied_count(
    dev: cb.Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    go = threading.Event()
    later = Copier.later

    def late(self: Copier, target: np.ndarray, source: np.ndarray, then: Callable[[], Any]) -> None:
        later(self, target[:0], source[:0], lambda: go.wait(BOUND))
        later(self, target, source, then)

    monkeypatch.setattr(Copier, "later", late)
    old = block(dev, 5)
    await old
    new = block(dev, 6, 4.0)
    dev._port.flush()
    slow = dev.put(np.full(1000, 3, np.float32), non_blocking=True)
    del old  # its release stands behind the copy
    asked = asyncio.Event()
    take = dev._actor.on_answer

    def on_answer(message: Any) -> None:
        take(message)
        if isinstance(message, Flush):
            asked.set()

    monkeypatch.setattr(dev._actor, "on_answer", on_answer)
    async with asyncio.timeout(BOUND):
        await asked.wait()
    go.set()
    assert await total(new) == 24
    np.testing.assert_array_equal(await slow.get(), np.full(1000, 3))


@pytest.mark.few(1)
@pytest.mark.parametrize("isolation", ["thread", "process"])
@pytest.mark.parametrize("failures,rescued", [(1, True), (2, True), (4, False)])
async def test_a_driver_without_memory_is_asked_again_after_a_trim(
    isolation: str, failures: int, rescued: bool
) -> None:
    async with cb.device(f"faulty+cpu?oom_at=2&oom={failures}", isolation=isolation, standby=None) as dev:
        first = await block(dev, 1)
        second = dev.put(np.full(2 * MB // 4, 5, np.float32))
        if rescued:
            assert await total(second) == 10
        else:
            with pytest.raises(cb.OutOfMemory, match="injected at allocation"):
                await second
            assert await total(block(dev, 2, 6.0)) == 12
        assert await total(first) == 1
        assert dev.health().restarts == 0


async def test_the_limit_counts_what_the_pool_keeps(dev: cb.Device) -> None:
    for mb in (5, 6, 4, 3, 7):
        assert await total(block(dev, mb)) == mb
        stats = await dev.stats()
        assert stats.used_bytes + stats.cached_bytes <= LIMIT


async def test_overwriting_all_of_an_array_that_never_had_memory_gives_it_some(dev: cb.Device) -> None:
    old = block(dev, 5)
    refused = dev.empty((5 * MB // 4,))
    for call in (lambda: dev.fill(refused[1:], 2.0), lambda: dev.copy(refused)):
        with pytest.raises(cb.OutOfMemory):
            await call()
    await old
    del old
    assert await total(dev.fill(refused, 2.0)) == 10
    assert await total(refused) == 10


async def test_memory_that_is_in_use_on_a_stream_is_waited_for() -> None:
    EVENTS.clear()
    undo = registry.register("probe", ProbeBackend())
    try:
        async with cb.device("probe", isolation="thread", memory_limit=LIMIT) as dev:
            x = block(dev, 3)
            late = dev.ask(Add(x=x, after="go"))
            x.free()
            other = block(dev, 3, 9.0)  # gets x's memory, and may not touch it before `late` has read it
            EVENTS["go"].set()
            assert await total(late) == 6
            assert await total(other) == 27
    finally:
        undo()


async def test_failed_requests_give_back_what_they_held_at_a_device_that_is_never_idle(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An out-of-memory must not keep the arrays of its request, so that the next request fails of it, too."""

    async def served(dev: cb.Device, mb: int) -> float:
        kept = block(dev, 4)
        return await total(kept) + await total(block(dev, mb))

    monkeypatch.setattr(steps, "PATIENCE", 600.0)
    steps.events.clear()
    undo = registry.register("steps", steps.StepsBackend())
    gc.collect()
    gc.disable()
    try:
        async with cb.device("steps", isolation="thread", memory_limit=LIMIT) as dev:
            x = dev.full((4,), 1.0)  # kept: a flush waits for what uses memory that was freed
            busy = dev.ask(steps.Left(x=x, after="go"))
            for _ in range(4):
                with pytest.raises(cb.OutOfMemory):
                    await served(dev, 8)
                assert await served(dev, 3) == 7
            assert not busy.done()
            steps.events["go"].set()
            await busy
    finally:
        gc.enable()
        undo()
