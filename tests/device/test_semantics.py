"""One order, hazards, completions, frees, parking and back-pressure on real CPU streams."""

import asyncio
import gc
import logging
from collections.abc import AsyncIterator

import numpy as np
import pytest
from tests.device.probes import EVENTS, Add, Bump, ProbeBackend, Slow
from tests.together import together

import callboard as cb
from callboard.core import registry
from callboard.device.client import handle
from callboard.device.client.line.status import PlanStats
from callboard.kernel.blas import Gemm

BOUND = 20.0


@pytest.fixture(params=["host_fn", "polled"])  # polled: the loop's thread launches and looks itself, where it can
async def dev(request: pytest.FixtureRequest) -> AsyncIterator[cb.Device]:
    EVENTS.clear()
    undo = registry.register("probe", ProbeBackend())
    async with cb.System("test") as system:
        yield await system.device("probe", max_in_flight=256, completion=request.param)
        for event in EVENTS.values():
            event.set()
    undo()


def ones(n: int = 4) -> np.ndarray:
    return np.ones(n, np.float32)


async def test_a_chain_is_called_without_waiting_and_gives_the_right_values(dev: cb.Device) -> None:
    x = dev.put(ones())
    for _ in range(50):
        x = dev.ask(Add(x=x))
    assert x.shape == (4,)
    np.testing.assert_array_equal(await x.get(), ones() * 51)


async def test_a_reader_on_another_stream_waits_for_the_writer(dev: cb.Device) -> None:
    x = dev.put(ones())
    y = dev.ask(Add(x=x, after="go"))
    z = dev.ask(Slow(x=y))
    assert not z.done()
    EVENTS["go"].set()
    np.testing.assert_array_equal(await z.get(), ones() * 3)


async def test_a_writer_on_another_stream_waits_for_the_readers(dev: cb.Device) -> None:
    x = dev.put(ones())
    late = dev.ask(Add(x=x, after="read"))  # reads x late, on its stream
    dev.fill(x, 100)  # writes x on the memory stream
    EVENTS["read"].set()
    np.testing.assert_array_equal(await late.get(), ones() * 2)
    np.testing.assert_array_equal(await x.get(), ones() * 100)


async def test_memory_that_was_freed_is_not_reused_before_its_users_are_done(dev: cb.Device) -> None:
    x = dev.put(ones(4096))
    late = dev.ask(Add(x=x, after="read"))
    x.free()
    others = [dev.full(4096, 7.0) for _ in range(4)]  # one of these gets x's memory
    EVENTS["read"].set()
    np.testing.assert_array_equal(await late.get(), ones(4096) * 2)
    for other in others:
        np.testing.assert_array_equal(await other.get(), ones(4096) * 7)


async def test_a_failure_reaches_every_reader_as_its_own_class_with_notes(dev: cb.Device) -> None:
    bad = dev.ask(Add(x=dev.put(ones()), error="library", after="go"))
    second = dev.ask(Add(x=bad))
    third = dev.ask(Slow(x=second))
    EVENTS["go"].set()
    for ref in (third, second, bad):
        with pytest.raises(cb.LibraryError, match="the library said no") as caught:
            await ref
        assert caught.value.code == 7
        assert caught.value.device == "probe:0"
        assert any(f"{__file__}:" in note for note in caught.value.__notes__)
    with pytest.raises(cb.LibraryError):
        await third.get()


async def test_overwriting_all_of_a_failed_array_heals_it_and_a_part_does_not(dev: cb.Device) -> None:
    bad = dev.ask(Add(x=dev.put(ones()), error="library"))
    with pytest.raises(cb.LibraryError):
        await bad
    dev.fill(bad[:2], 5)
    with pytest.raises(cb.LibraryError):
        await bad.get()
    dev.fill(bad, 5)
    np.testing.assert_array_equal(await bad.get(), ones() * 5)


async def test_an_in_place_op_on_a_failed_array_fails(dev: cb.Device) -> None:
    bad = dev.ask(Add(x=dev.put(ones()), error="library"))
    with pytest.raises(cb.LibraryError):
        await dev.ask(Bump(x=bad))


async def test_a_crashing_launch_is_answered_and_the_library_goes_on(dev: cb.Device) -> None:
    x = dev.put(ones())
    with pytest.raises(cb.LibraryError, match="RuntimeError: the launch failed"):
        await dev.ask(Add(x=x, error="launch"))
    np.testing.assert_array_equal(await dev.ask(Add(x=x)).get(), ones() * 2)
    assert (await dev.stats()).restarts == 0


async def test_an_op_whose_plan_is_prepared_parks_with_its_library_and_readers_only(dev: cb.Device) -> None:
    x = dev.put(ones())
    slow = dev.ask(Slow(x=x, plan="ready"))
    reader = dev.ask(Add(x=slow))
    free = dev.copy(x)
    np.testing.assert_array_equal(await free.get(), ones())  # another library goes on meanwhile
    assert not slow.done()
    assert (await dev.stats()).parked >= 2
    overwritten = dev.fill(x, 50)  # parks: the parked op has yet to read x
    del x, free  # their memory stays until nobody has to read it
    gc.collect()
    other = dev.full(4, 9.0)
    assert not overwritten.done()
    EVENTS["ready"].set()
    np.testing.assert_array_equal(await reader.get(), ones() * 3)
    np.testing.assert_array_equal(await other.get(), ones() * 9)
    np.testing.assert_array_equal(await overwritten.get(), ones() * 50)


@pytest.mark.parametrize(
    "options",
    [
        {"isolation": "thread"},
        {"isolation": "thread", "completion": "polled"},
        {"isolation": "process"},
        {"dispatcher": "caller"},
    ],
)
async def test_asks_in_a_row_leave_the_loop_its_turns(options: dict[str, str]) -> None:
    async with cb.device("cpu", standby=None, linger=0.005, **options) as device:
        x = await device.put(ones())
        turns = 0

        async def other() -> None:
            nonlocal turns
            while True:
                await asyncio.sleep(0)
                turns += 1

        task = asyncio.create_task(other())
        for _ in range(20_000):
            await device.blas.scal(x, alpha=1.0)
            if turns > 3:
                break
        task.cancel()
        assert turns > 3


@pytest.mark.parametrize("how", ["crash", "refuse"])
async def test_a_prepare_that_fails_is_answered_once_and_tried_again_by_later_calls(dev: cb.Device, how: str) -> None:
    x = dev.put(ones())
    first, second = dev.ask(Slow(x=x, plan=how)), dev.ask(Slow(x=x, plan=how))
    for ref in (first, second, dev.ask(Add(x=second)), dev.ask(Slow(x=x, plan=how))):
        with pytest.raises(cb.LibraryError, match=r"the prepare failed|no plan"):
            await asyncio.wait_for(ref.get(), BOUND)
    np.testing.assert_array_equal(await dev.ask(Slow(x=x)).get(), ones() * 2)


async def test_a_withdrawn_op_fails_for_its_readers_and_does_nothing(dev: cb.Device) -> None:
    x = dev.put(ones())
    op = dev.ask(Bump(x=x, n=10))
    assert op.cancel()
    with pytest.raises(cb.Withdrawn):
        await op
    with pytest.raises(cb.Withdrawn):
        await x.get()
    dev.fill(x, 2)
    np.testing.assert_array_equal(await x.get(), ones() * 2)
    y = dev.ask(Add(x=x))
    await y
    assert not y.cancel()  # it has been sent


async def test_cancelling_a_waiter_detaches_that_waiter_only(dev: cb.Device) -> None:
    y = dev.ask(Add(x=dev.put(ones()), after="go"))

    async def wait() -> cb.GpuRef:
        return await y

    first, second = asyncio.create_task(wait()), asyncio.create_task(wait())
    await asyncio.sleep(0)
    first.cancel()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await y
    EVENTS["go"].set()
    assert await second is y


async def test_too_many_ops_in_flight_is_an_error_at_the_call_and_room_waits(dev: cb.Device) -> None:
    x = dev.put(ones())
    await x
    dev.ask(Add(x=x, after="go"))
    refs = [dev.ask(Add(x=x)) for _ in range(255)]
    with pytest.raises(cb.MailboxFull, match=r"256 ops are in flight \(max_in_flight\)"):
        dev.ask(Add(x=refs[0]))
    room = asyncio.create_task(dev.room(200))
    await asyncio.sleep(0)
    assert not room.done()
    EVENTS["go"].set()
    await room
    dev.ask(Add(x=x))
    with pytest.raises(ValueError, match="max_in_flight is 256"):
        await dev.room(257)


async def test_use_after_free_is_refused_by_name_and_freeing_twice_is_harmless(dev: cb.Device) -> None:
    x = dev.put(ones())
    view = x[1:]
    x.free()
    x.free()
    with pytest.raises(cb.GpuRefStale, match=r"probe.add: x f32\[3\].*freed; use it before free") as caught:
        dev.ask(Add(x=view))
    assert caught.value.reason == "freed"
    with pytest.raises(cb.GpuRefStale, match="freed"):
        view.get()


async def test_a_ref_of_another_device_is_refused(dev: cb.Device) -> None:
    async with cb.device("cpu") as other:
        foreign = other.put(ones())
        with pytest.raises(cb.DeviceMismatch, match=r"x f32.*is on cpu:0, the op on probe:0"):
            dev.ask(Add(x=foreign))


async def test_a_ref_of_the_same_device_opened_twice_is_refused_by_words_that_tell_them_apart() -> None:
    async with cb.device("cpu") as one, cb.device("cpu") as other:
        with pytest.raises(cb.DeviceMismatch, match=r"b f32\[2, 2\] is on another handle of cpu:0, opened separately"):
            one.blas.gemm(one.zeros((2, 2)), other.zeros((2, 2)))


async def test_an_operand_among_several_is_named_by_its_place(dev: cb.Device) -> None:
    a, b, freed = dev.zeros((2, 2)), dev.zeros((2, 2)), dev.zeros((2, 2))
    freed.free()
    with pytest.raises(cb.GpuRefStale, match=r"tensor\.einsum: operands\[1\] f32.*freed"):
        dev.tensor.einsum("ij,jk->ik", a, freed)
    with pytest.raises(TypeError, match=r"operands\[1\] is ndarray; pass a GpuRef"):
        dev.tensor.einsum("ij,jk->ik", a, np.eye(2))  # type: ignore[arg-type]
    with pytest.raises(cb.ShapeError, match=r"out f32.* shares memory with operands\[1\] f32"):
        dev.tensor.einsum("ij,jk->ik", a, b, out=b)


@pytest.mark.slow
async def test_closing_outlasts_a_thread_that_does_not_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """It gets ``close_timeout`` twice, and the device then ends all the same, without an error."""
    monkeypatch.setattr(handle, "GRACE", 0.9)
    undo = registry.register("probe", ProbeBackend())
    try:
        async with cb.System("test") as system:
            dev = await system.device("probe", close_timeout=1.0)
            EVENTS.clear()
            x = dev.ask(Add(x=dev.put(ones()), after="never"))
            await dev.close()
            with pytest.raises(cb.DeviceStopped):
                await x
            EVENTS["never"].set()
    finally:
        undo()


async def test_memory_comes_back_when_refs_go(dev: cb.Device) -> None:
    for _ in range(100):
        await dev.ask(Add(x=dev.put(ones(10_000))))
    gc.collect()
    await dev.drain()
    stats = await dev.stats()
    assert stats.buffers == 0
    assert stats.used_bytes == 0
    assert stats.cached_bytes < 40 * 40_448


async def test_a_release_leaves_while_the_line_is_idle(dev: cb.Device) -> None:
    x = dev.put(ones(10_000))
    await x
    del x
    gc.collect()
    async with asyncio.timeout(BOUND):
        while (await dev.stats()).buffers:
            pass


@pytest.mark.slow
async def test_a_failure_that_nobody_awaits_is_logged_once(dev: cb.Device, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR, "callboard"):
        bad = dev.ask(Add(x=dev.put(ones()), error="library"))
        worse = dev.ask(Add(x=bad))
        await dev.drain()
        del bad, worse
        gc.collect()
        await asyncio.sleep(0)
        await dev.drain()
        await dev.stats()
    lines = [r for r in caplog.records if "was not awaited: LibraryError" in r.message]
    assert len(lines) == 1
    assert "the library said no" in lines[0].message


async def test_a_failure_that_nobody_awaits_is_a_dead_letter() -> None:
    undo = registry.register("probe", ProbeBackend())
    async with cb.System("test") as system:
        dev = await system.device("probe")
        came: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        system.dead_letters.subscribe(lambda letter: came.set_result(f"{letter.reason}: {letter.message}"))
        dev.tell(Add(x=dev.put(ones()), error="library"))
        await dev.drain()
        gc.collect()
        assert await asyncio.wait_for(came, BOUND) == "unretrieved: the library said no"
    undo()


async def test_a_withdrawal_that_nobody_awaits_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "callboard"):
        async with cb.System("test") as system:
            system._unretrieved(cb.Withdrawn("the call was cancelled"))
            assert system.dead_letters.counts == {"unretrieved": 1}
            assert system.dead_letters.recent() == []
    assert not [r for r in caplog.records if "Withdrawn" in r.getMessage()]


@pytest.mark.slow
async def test_a_failure_that_was_seen_is_not_logged(dev: cb.Device, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR, "callboard"):
        bad = dev.ask(Add(x=dev.put(ones()), error="library"))
        worse = dev.ask(Add(x=bad))
        with pytest.raises(cb.LibraryError):
            await worse
        del bad, worse
        gc.collect()
        await dev.stats()
    assert not [r for r in caplog.records if "was not awaited" in r.message]


async def test_threads_may_call_ops_in_their_own_order(dev: cb.Device) -> None:
    await dev.room(200)

    def work(k: int) -> np.ndarray:
        x = dev.put(np.full(8, k, np.float32))
        for _ in range(20):
            x = dev.ask(Add(x=x))
        return x.get().result(timeout=BOUND)

    for k, found in enumerate(await asyncio.to_thread(together, work, [(k,) for k in range(4)], BOUND)):
        np.testing.assert_array_equal(found, np.full(8, k + 20, np.float32))


async def test_result_on_the_loops_own_thread_is_refused(dev: cb.Device) -> None:
    y = dev.ask(Add(x=dev.put(ones()), after="go"))
    with pytest.raises(RuntimeError, match="would dead-lock; await the reply"):
        y.result(1)
    EVENTS["go"].set()
    await y
    assert y.result() is y


async def test_shapes_are_checked_before_anything_is_sent(dev: cb.Device) -> None:
    a, b = dev.put(np.ones((3, 4), np.float32)), dev.put(np.ones((3, 4), np.float32))
    with pytest.raises(cb.ShapeError, match=r"blas\.gemm"):
        dev.ask(Gemm(a=a, b=b))
    out = dev.empty((3, 3))
    with pytest.raises(cb.ShapeError, match=r"out .*shares memory with x"):
        dev.ask(Add(x=out[:2], out=out[1:]))


async def test_each_overlap_is_told_also_among_calls_that_are_right(dev: cb.Device) -> None:
    x = dev.put(ones(8))
    for _ in range(3):
        await dev.ask(Add(x=x[:4], out=x[4:]))  # the same places again are not looked at again
        for _ in range(2):
            with pytest.raises(cb.ShapeError, match=r"out .*shares memory with x"):
                dev.ask(Add(x=x[:4], out=x[2:6]))
    np.testing.assert_array_equal(await x.get(), np.repeat([1, 2], 4))


@pytest.mark.parametrize("shape", [(0,), (3, 0, 2), (), (1,), (5, 7), (3_000_000,)])
@pytest.mark.parametrize("non_blocking", [False, True])
async def test_put_and_get_round_trip(dev: cb.Device, shape: tuple[int, ...], non_blocking: bool) -> None:
    array = np.random.default_rng(0).random(shape)
    ref = dev.put(array, non_blocking=non_blocking)
    doubled = dev.copy(ref)
    np.testing.assert_array_equal(await doubled.get(), array)
    out = np.empty_like(array)
    assert await ref.get(out) is out
    np.testing.assert_array_equal(out, array)


async def test_put_wants_to_know_what_masked_elements_are(dev: cb.Device) -> None:
    array = np.ma.MaskedArray([1.0, 2.0, 3.0], mask=[False, True, False])
    with pytest.raises(TypeError, match=r"masked elements; fill them first: put\(array\.filled\(value\)\)"):
        dev.put(array)
    np.testing.assert_array_equal(await dev.put(array.filled(-1.0)).get(), [1, -1, 3])
    np.testing.assert_array_equal(await dev.put(np.ma.MaskedArray([1.0, 2.0])).get(), [1, 2])


async def test_put_reads_any_strides_and_get_gives_any_view(dev: cb.Device) -> None:
    array = np.arange(4_000_000, dtype=np.float64).reshape(2000, 2000)
    ref = dev.put(array[::2, ::-1])
    np.testing.assert_array_equal(await ref.get(), array[::2, ::-1])
    np.testing.assert_array_equal(await ref[10:1:-3, ::5].get(), array[::2, ::-1][10:1:-3, ::5])
    np.testing.assert_array_equal(await ref.T.get(), array[::2, ::-1].T)


async def test_leased_arrays_move_without_a_copy_on_the_host(dev: cb.Device) -> None:
    leased = dev.host_empty((100, 100), "f64")
    leased[...] = 3
    ref = dev.put(leased)
    back = dev.host_empty((100, 100), "f64")
    assert await dev.ask(Add(x=ref)).get(back) is back
    assert (back == 4).all()
    staged = (await dev.stats()).staged_bytes
    del leased, back
    gc.collect()
    assert (await dev.stats()).staged_bytes < staged


@pytest.mark.parametrize("shape", [(2.5,), "34", (1, None), None])
async def test_a_shape_is_made_of_integers(dev: cb.Device, shape: object) -> None:
    for make in (dev.empty, dev.zeros, dev.host_empty):
        with pytest.raises(cb.ShapeError, match="pass an int or a sequence of ints"):
            make(shape)  # type: ignore[operator]


async def test_a_shape_that_no_device_holds_is_refused_at_the_call(dev: cb.Device) -> None:
    for make in (dev.empty, dev.zeros):
        with pytest.raises(cb.ShapeError, match="too large"):
            make((1 << 40, 1 << 40))  # type: ignore[operator]
    await dev.drain()
    assert await dev.zeros(2).get() == pytest.approx([0, 0])


async def test_views_take_shapes_as_numpy_does(dev: cb.Device) -> None:
    ref = dev.put(np.arange(6))
    assert ref.reshape((2, 3)).shape == ref.reshape([2, -1]).shape == ref.reshape(2, 3).shape == (2, 3)
    with pytest.raises(cb.ShapeError, match="pass an int or a sequence of ints"):
        ref.reshape((2, 3), 1)
    assert [row.shape for row in ref.reshape(2, 3)] == [(3,), (3,)]
    with pytest.raises(TypeError, match="0-d"):
        list(ref[0])


async def test_get_names_what_does_not_fit(dev: cb.Device) -> None:
    ref = dev.put(ones())
    with pytest.raises(TypeError, match="out is list; pass a NumPy array"):
        ref.get([0] * 4)  # type: ignore[call-overload]
    with pytest.raises(cb.ShapeError, match=r"out is float64\[4\], the array is f32\[4\]"):
        ref.get(np.empty(4))


@pytest.mark.slow
async def test_tokens_lead_back_to_their_ref(dev: cb.Device) -> None:
    ref = dev.put(np.arange(6, dtype=np.float32).reshape(2, 3))
    token = ref[1].token()
    np.testing.assert_array_equal(await dev.resolve(token).get(), [3, 4, 5])
    del ref
    gc.collect()
    with pytest.raises(cb.GpuRefStale, match="freed"):
        dev.resolve(token)


async def test_a_trace_sees_every_op_and_costs_nothing_when_it_is_gone(dev: cb.Device) -> None:
    seen = []
    x = dev.put(ones())
    await x
    remove = await dev.trace(seen.append)
    bad = dev.ask(Add(x=x, error="library"))
    y = dev.ask(Slow(x=x))
    await y
    with pytest.raises(cb.LibraryError):
        await bad
    await dev.stats()
    await remove()
    await dev.ask(Add(x=x))
    await dev.stats()
    assert [(r.tag, r.ok) for r in sorted(seen)] == [("probe.add", False), ("other.slow", True)]
    assert len({r.stream for r in seen}) == 2
    assert all(r.began <= r.enqueued <= r.completed for r in seen)


@pytest.mark.parametrize("isolation", ["thread", "process"])
async def test_plans_are_counted(isolation: str) -> None:
    async with cb.device("cpu", isolation=isolation, standby=None) as dev:
        x = dev.put(ones())
        for _ in range(3):
            await dev.blas.axpy(x, dev.zeros(4))
        assert (await dev.stats()).plans["blas"] == PlanStats(entries=1, hits=2, misses=1, evictions=0)
