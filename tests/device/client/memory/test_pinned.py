"""Pools of page-locked arrays: loans, the queue, transfers without a copy, and contexts that come and go."""

import asyncio
import gc
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import callboard as cb
from callboard.device.client.memory.pinned import QUICK
from callboard.testing.faulty import FaultyBackend

pytestmark = [pytest.mark.leaves_nothing]

BOUND = 30.0


@pytest.fixture(params=["thread", pytest.param("process", marks=pytest.mark.slow)])
async def dev(request: pytest.FixtureRequest) -> AsyncIterator[cb.Device]:
    async with cb.device("cpu", isolation=request.param, standby=None, max_staged_bytes=64 << 20) as opened:
        yield opened


async def until(holds: Any) -> None:
    async with asyncio.timeout(BOUND):
        while not holds():  # noqa: ASYNC110 - what is waited for is garbage, or another task's next step
            await asyncio.sleep(0)


async def test_a_buffer_goes_to_the_device_and_back_without_a_copy(dev: cb.Device) -> None:
    pool = dev.pinned_pool(2)
    with await pool.acquire((3, 5), "f64") as a, await pool.acquire((3, 5), "f64") as b:
        a[...] = np.arange(15.0).reshape(3, 5)
        staged = (await dev.stats()).staged_bytes
        ref = dev.put(a)
        assert await ref.get(out=b) is b
        assert (await dev.stats()).staged_bytes == staged, "the buffers themselves are read and written"
        np.testing.assert_array_equal(a, b)
        part = await ref[1:2].get(out=b[:1])  # a contiguous part of a buffer is one, too
        np.testing.assert_array_equal(part, a[1:2])
        assert pool.stats().in_use == 2
    del a, b, part
    await until(lambda: pool.stats().in_use == 0)
    assert pool.stats().acquired == 2
    assert pool.stats().peak_bytes == 2 * 120


async def test_who_comes_first_is_served_first(dev: cb.Device) -> None:
    pool = dev.pinned_pool(1)
    buffer = await pool.acquire(4)
    served: list[int] = []

    async def one(number: int) -> None:
        with await pool.acquire(4):
            served.append(number)

    async with asyncio.timeout(BOUND), asyncio.TaskGroup() as group:
        for number in range(5):
            group.create_task(one(number))
        await until(lambda: pool.stats().waiting == 5)
        buffer.release()
    assert served == [0, 1, 2, 3, 4]
    assert pool.stats().waited == 5


async def test_a_buffer_that_is_kept_beyond_its_block_is_not_lent_again(dev: cb.Device) -> None:
    pool = dev.pinned_pool(1)
    with await pool.acquire(4, "i32") as kept:
        kept[...] = 7
    view = kept[1:3]
    del kept
    with pytest.raises(cb.AskTimeout, match="1 of 1 are out"):
        await pool.acquire(4, timeout=0)
    np.testing.assert_array_equal(view, [7, 7])
    del view
    assert (await pool.acquire(4, timeout=0)).array.shape == (4,)


async def test_a_buffer_in_flight_is_not_lent_again(dev: cb.Device) -> None:
    pool = dev.pinned_pool(1)
    with await pool.acquire(1 << 20, "u8") as a:
        a[...] = 3
        ref = dev.put(a)
    del a
    with await pool.acquire(1 << 20, "u8") as b:  # comes when the device has read it
        b[...] = 9
    assert (await ref.get() == 3).all()


async def test_caps_and_arguments_are_checked(dev: cb.Device) -> None:
    pool = dev.pinned_pool(3, max_bytes=1000)
    with pytest.raises(cb.ShapeError, match=r"1,004 bytes; the pool's max_bytes is 1,000"):
        await pool.acquire(251)
    with pytest.raises(cb.ShapeError, match="extents are >= 0"):
        await pool.acquire((2, -1))
    held = await pool.acquire(200)
    with pytest.raises(cb.AskTimeout, match="with 800 bytes"):
        await pool.acquire(51, timeout=0)
    held.release()
    with pytest.raises(ValueError, match="the buffer has been released"):
        _ = held.array
    for wrong in ({"max_buffers": 0}, {"max_bytes": 0}):
        with pytest.raises(ValueError, match="it is at least 1"):
            dev.pinned_pool(**wrong)  # type: ignore[arg-type]
    assert pool.stats().timed_out == 1


async def test_who_leaves_the_queue_lets_the_next_one_pass(dev: cb.Device) -> None:
    pool = dev.pinned_pool(9, max_bytes=1000)
    held = await pool.acquire(500, "u8")
    large = asyncio.ensure_future(pool.acquire(1000, "u8"))
    small = asyncio.ensure_future(pool.acquire(500, "u8"))
    await until(lambda: pool.stats().waiting == 2)
    large.cancel()
    async with asyncio.timeout(BOUND):
        assert (await small).nbytes == 500
    with pytest.raises(asyncio.CancelledError):
        await large
    held.release()
    del small
    gc.collect()
    await until(lambda: pool.stats().in_use == 0)


async def test_a_waiter_that_is_cancelled_as_it_is_served_gives_it_back(dev: cb.Device) -> None:
    pool = dev.pinned_pool(1)
    held = await pool.acquire(4)
    waiter = asyncio.ensure_future(pool.acquire(4))
    await until(lambda: pool.stats().waiting == 1)
    held.release()
    pool._wake()
    waiter.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiter
    assert (await pool.acquire(4, timeout=0)).nbytes == 16


async def test_where_the_device_has_no_room_the_pool_waits_for_its_own(dev: cb.Device) -> None:
    pool = dev.pinned_pool(9)
    first = await pool.acquire(40 << 20, "u8")
    second = asyncio.ensure_future(pool.acquire(40 << 20, "u8"))
    await until(lambda: pool.stats().waiting == 1)
    first.release()
    async with asyncio.timeout(BOUND):
        buffer = await second
    assert buffer.nbytes == 40 << 20 > QUICK
    buffer.release()
    await until(lambda: pool.stats().in_use == 0)
    others = dev.host_empty(50 << 20, "u8")
    with pytest.raises(cb.MailboxFull, match="max_staged_bytes"):
        await pool.acquire(40 << 20, "u8")
    assert pool.stats().in_use == 0
    del others
    assert pool.trim() >= 40 << 20
    assert pool.stats().mapped_bytes == 0


async def test_buffers_are_dropped_on_any_thread(dev: cb.Device) -> None:
    pool = dev.pinned_pool(1)
    kept = [await pool.acquire(4)]
    waiter = asyncio.ensure_future(pool.acquire(4))
    await until(lambda: pool.stats().waiting == 1)
    thread = threading.Thread(target=kept.clear)
    thread.start()
    thread.join()
    async with asyncio.timeout(BOUND):
        await waiter


async def test_closing_ends_the_waiting() -> None:
    async with cb.device("cpu", isolation="thread") as dev:
        pools = [dev.pinned_pool(1), dev.pinned_pool(1)]
        held = [await pool.acquire(4) for pool in pools]
        waiters = [asyncio.ensure_future(pool.acquire(4)) for pool in pools]
        await until(lambda: all(pool.stats().waiting for pool in pools))
        pools[0].close()
        with pytest.raises(cb.DeviceStopped, match="the pool is closed"):
            await waiters[0]
    with pytest.raises(cb.DeviceStopped, match="this device is closed"):
        await waiters[1]
    with pytest.raises(cb.DeviceStopped, match="the pool is closed"):
        await pools[0].acquire(4)
    held[0].array[...] = 1  # stays valid


@pytest.mark.slow
async def test_contexts_come_and_go_and_no_buffer_is_lost(tmp_path: Path) -> None:
    backend = FaultyBackend("cpu", exit_at=6, once=str(tmp_path / "once"))
    async with cb.device(backend.spec, isolation="process") as dev:
        pool = dev.pinned_pool(4)
        lost = 0
        for number in range(8):
            try:
                with await pool.acquire(1000, "i64") as a:
                    a[...] = number
                    ref = dev.put(a)
                    assert (await ref.get(out=a) == number).all()
            except cb.ContextLost:
                lost += 1
            a = ref = None
        assert lost == 1
        gc.collect()
        await until(lambda: pool.stats().in_use == 0)
        buffers = [await pool.acquire(1000, "i64", timeout=BOUND) for _ in range(4)]
        assert len({buffer.array.ctypes.data for buffer in buffers}) == 4


def test_the_blocking_pool() -> None:
    with cb.sync.device("cpu") as dev, dev.pinned_pool(1, max_bytes=100) as pool:
        with pool.acquire(10) as a:
            a[...] = 2
            assert dev.put(a).get(out=a) is a
            with pytest.raises(cb.AskTimeout):
                pool.acquire(10, timeout=0)
        del a
        with pool.acquire(10, timeout=BOUND):
            assert pool.stats().in_use == 1
        assert pool.trim() > 0
        assert pool.stats().mapped_bytes == 0


async def test_a_buffer_that_comes_back_before_its_waiter_is_listed(
    dev: cb.Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = dev.pinned_pool(1)
    held = [await pool.acquire(4)]
    ask = pool._quota.ask

    def asked(who: Any, nbytes: int) -> bool:
        held.clear()  # as another thread may do now: nothing waits yet, so nothing is woken
        gc.collect()
        return ask(who, nbytes)

    monkeypatch.setattr(pool._quota, "ask", asked)
    async with asyncio.timeout(BOUND):
        assert (await pool.acquire(4)).nbytes == 16
