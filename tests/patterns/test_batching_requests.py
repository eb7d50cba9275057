"""Requests of the batching server in virtual time: cancelled, expired, drained, stopped, counted."""

import asyncio
import contextlib
import gc
import weakref

import pytest
from batching_lab import Model, lab, outcome, set_done, turns

from callboard.actors import ManualClock
from callboard.patterns.batching.server import DynamicBatchingServer
from callboard.patterns.batching.settings import BatchOptions
from callboard.patterns.requests.errors import DeadlineExceeded, ServerStopped
from callboard.patterns.requests.waiting import QueueOptions

# -- cancellation ------------------------------------------------------------------------------------------------------


async def test_a_cancelled_request_leaves_the_queue_at_once(clock: ManualClock) -> None:
    model = Model()
    async with lab(model, clock, max_batch=2, max_queue=2) as server:
        server.submit_nowait("a")
        await turns()
        task = asyncio.create_task(server.submit("b"))
        other = server.submit_nowait("c")
        await turns()
        assert server.stats().queued == 2
        task.cancel()
        await turns(2)
        assert server.stats().queued == 1
        fresh = server.submit_nowait("d")  # there is room again
        await model.release_all()
        assert model.batches == [["a"], ["c", "d"]]
        assert [await other, await fresh] == ["<c>", "<d>"]
        assert server.stats().cancelled == 1


async def test_cancelling_one_that_runs_harms_no_other(clock: ManualClock) -> None:
    model = Model()
    async with lab(model, clock) as server:
        futures = [server.submit_nowait(item) for item in "abc"]
        await turns()
        assert futures[1].cancel()
        assert not futures[1].cancel()
        await model.release()
        assert [await outcome(futures[n]) for n in (0, 2)] == ["<a>", "<c>"]
        assert (server.stats().cancelled, server.stats().completed) == (1, 2)


async def test_timeouts_of_clients_do_not_poison_later_traffic(clock: ManualClock) -> None:
    model = Model()
    async with lab(model, clock, max_batch=8, max_queue=8) as server:
        for _ in range(20):
            tasks = [asyncio.create_task(server.submit(n)) for n in range(8)]
            await turns()
            for task in tasks:
                task.cancel()
            await turns()
        assert (server.stats().queued, server.stats().cancelled) == (0, 160)
        await model.release_all()
        last = asyncio.create_task(server.submit("last"))
        await turns()
        await model.release_all()
        assert await last == "<last>"


async def test_nothing_of_a_request_stays_behind(clock: ManualClock) -> None:
    class Item:
        pass

    model = Model()
    async with lab(model, clock) as server:
        items = [Item() for _ in range(3)]
        seen = [weakref.ref(item) for item in items]
        futures = [server.submit_nowait(item, timeout=1e6) for item in items]
        await turns()
        await model.release()
        assert all(future.done() for future in futures)
        del items, futures
        model.batches.clear()
        gc.collect()
        assert [ref() for ref in seen] == [None] * 3


# -- deadlines ---------------------------------------------------------------------------------------------------------


async def test_an_expired_request_is_not_run(clock: ManualClock) -> None:
    model = Model()
    async with lab(model, clock) as server:
        server.submit_nowait("a")
        await turns()
        queued = [server.submit_nowait("b", timeout=1.0), server.submit_nowait("c", deadline=2.0, timeout=3.0)]
        clock.advance(1.0)
        error = await outcome(queued[0])
        assert isinstance(error, DeadlineExceeded)
        assert (error.stage, error.waited, error.retryable) == ("queue", 1.0, True)
        assert not queued[1].done()
        await model.release_all()
        assert model.batches == [["a"], ["c"]]
        assert await queued[1] == "<c>"


async def test_the_caller_of_one_that_runs_is_told_in_time(clock: ManualClock) -> None:
    model = Model()
    async with lab(model, clock) as server:
        futures = [server.submit_nowait("a", timeout=1.0), server.submit_nowait("b")]
        await turns()
        clock.advance(1.0)
        error = await outcome(futures[0])
        assert isinstance(error, DeadlineExceeded)
        assert error.stage == "run"
        await model.release()
        assert await futures[1] == "<b>"
        assert server.stats().expired == 1


async def test_a_deadline_that_has_passed_is_refused_at_the_call(clock: ManualClock) -> None:
    async with lab(Model(), clock) as server:
        with pytest.raises(DeadlineExceeded) as caught:
            await server.submit("a", deadline=0.0)
        assert caught.value.stage == "submit"


async def test_who_cannot_be_done_in_time_is_told_before_the_deadline(clock: ManualClock) -> None:
    model = Model()
    async with lab(model, clock, max_batch=2) as server:
        server.submit_nowait("a")
        await turns()
        late = server.submit_nowait("b", timeout=0.9)  # when nothing is known of the model yet
        other = server.submit_nowait("c")
        clock.advance(0.5)
        await model.release()  # so it takes 0.5 s, and there are 0.4 s left
        error = await outcome(late)
        assert isinstance(error, DeadlineExceeded)
        assert (error.stage, error.waited) == ("queue", 0.5)
        await model.release_all()
        assert await other == "<c>"
        assert model.batches == [["a"], ["c"]]


async def test_overload_computes_what_can_be_done_in_time(clock: ManualClock) -> None:
    """Three times what the model can do, 100 ms for each request: the model is busy with requests that make it."""
    done = 0
    expired: list[float] = []

    async def model(items: list[float]) -> list[float]:
        """10 ms a batch of at most four: 400 items a second."""
        nonlocal done
        expired.extend(item for item in items if item <= clock.time())
        over = asyncio.get_running_loop().create_future()
        clock.call_later(0.010, set_done, over)
        await over
        done += sum(deadline > clock.time() for deadline in items)
        return items

    async with lab(model, clock, max_batch=4) as server:
        futures = []
        for _ in range(600):  # every 10/12 ms: 1,200 a second, for half a second
            with contextlib.suppress(DeadlineExceeded):
                futures.append(server.submit_nowait(clock.time() + 0.100, timeout=0.100))
            await turns(8)
            clock.advance(0.010 / 12)
            await turns(8)
        clock.advance(0.2)
        await turns()
        stats = server.stats()
    assert expired == []
    assert stats.completed == done >= 0.9 * 400 * 0.5
    assert stats.submitted == 600 == stats.completed + stats.expired


# -- drain and stop ----------------------------------------------------------------------------------------------------


async def test_drain_finishes_what_was_accepted(clock: ManualClock) -> None:
    model = Model()
    async with lab(model, clock, max_batch=2, batches=BatchOptions(dispatch="window"), max_wait=10.0) as server:
        futures = [server.submit_nowait(item) for item in "abc"]
        draining = asyncio.create_task(server.drain())
        await turns()
        with pytest.raises(ServerStopped, match="draining"):
            await server.submit("d")
        await model.release_all()
        assert await draining is True
        assert [await future for future in futures] == ["<a>", "<b>", "<c>"]
        with pytest.raises(ServerStopped, match="stopped"):
            await server.submit("e")


async def test_drain_gives_up_in_time(clock: ManualClock) -> None:
    model = Model()
    async with lab(model, clock) as server:
        future = server.submit_nowait("a")
        draining = asyncio.create_task(server.drain(timeout=1.0))
        await turns()
        clock.advance(1.0)
        assert await draining is False
        assert isinstance(await outcome(future), ServerStopped)


async def test_stop_ends_everything_at_once(clock: ManualClock) -> None:
    model = Model()
    async with lab(model, clock, max_batch=1, max_queue=1, queue=QueueOptions(overflow="block")) as server:
        tasks = []
        for item in "abc":
            tasks.append(asyncio.create_task(server.submit(item)))
            await turns()
        await asyncio.gather(server.stop(), server.stop())
        assert [type(await outcome(task)) for task in tasks] == [ServerStopped] * 3
        assert server.stats().stopped == 3
        assert model.batches == [["a"]]
        await server.stop()
        assert await server.drain() is True


async def test_leaving_by_an_exception_stops_and_leaving_otherwise_drains(clock: ManualClock) -> None:
    model = Model()
    futures = []
    with contextlib.suppress(ZeroDivisionError):
        async with DynamicBatchingServer(model, clock=clock) as server:
            futures.append(server.submit_nowait("a"))
            raise ZeroDivisionError
    assert isinstance(await outcome(futures[0]), ServerStopped)

    async def echo(items: list[str]) -> list[str]:
        return items

    async with DynamicBatchingServer(echo, clock=clock) as server:
        futures.append(server.submit_nowait("b"))
    assert await futures[1] == "b"


async def test_a_function_that_resists_its_cancellation_does_not_hold_up_stop(
    clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    gate = asyncio.get_running_loop().create_future()

    async def stubborn(items: list[str]) -> list[str]:
        while not gate.done():
            try:
                await asyncio.shield(gate)
            except asyncio.CancelledError:
                continue
        return items

    server = await DynamicBatchingServer(stubborn, clock=clock).start()
    future = server.submit_nowait("a")
    await turns()
    stopping = asyncio.create_task(server.stop())
    await turns()
    assert isinstance(await outcome(future), ServerStopped)
    assert not stopping.done()
    clock.advance(5.0)
    await turns()
    assert stopping.done()
    assert "still runs" in caplog.text
    gate.set_result(None)
    await turns()


async def test_before_and_after_its_life_a_server_refuses() -> None:
    server = DynamicBatchingServer(Model())
    with pytest.raises(ServerStopped, match="not started"):
        await server.submit("a")
    with pytest.raises(RuntimeError, match="loop of the server"):
        server.submit_nowait("a")
    await server.start()
    with pytest.raises(RuntimeError, match="started before"):
        await server.start()
    await server.stop()
    with pytest.raises(ServerStopped):
        server.submit_threadsafe("a")
    assert repr(server) == "<DynamicBatchingServer 'batching', stopped, 0 requests>"


async def test_stats_add_up(clock: ManualClock) -> None:
    model = Model()
    async with lab(model, clock, max_batch=2) as server:
        futures = [server.submit_nowait(item) for item in "abcde"]
        futures[4].cancel()
        await turns()
        clock.advance(0.5)
        await model.release()
        stats = server.stats()
        assert (stats.submitted, stats.completed, stats.running, stats.queued, stats.cancelled) == (5, 2, 2, 0, 1)
        assert (stats.batches, stats.batch_size.mean, stats.run_time.max) == (1, 2.0, 0.5)
        assert stats.run_time_by_size == {2: (1, 0.5)}
        assert stats.total_time.mean == 0.5
        assert stats.queue_time.max == 0.5  # of the second batch, which is formed already
