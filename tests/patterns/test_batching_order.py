"""The order of requests and of their ends, ragged batches, batches that are held, and failed batches item by item."""

import asyncio
from collections import Counter
from typing import Any

import numpy as np
import pytest
from batching_lab import Model, lab, outcome, turns
from hypothesis import given
from hypothesis import strategies as st

import callboard as cb
from callboard.actors import ManualClock
from callboard.patterns.batching.server import DynamicBatchingServer
from callboard.patterns.requests.entries import Entry
from callboard.patterns.requests.waiting import QueueOptions, WaitingLine


async def test_the_earliest_deadline_comes_first_within_a_priority(clock: ManualClock) -> None:
    model = Model()
    async with lab(model, clock, max_batch=2, queue=cb.QueueOptions(order="deadline", ageing=None)) as server:
        running = server.submit_nowait("running")
        await turns()
        for item, timeout, priority in (
            ("none", None, 0),
            ("late", 9.0, 0),
            ("soon", 5.0, 0),
            ("high", 99.0, 1),
            ("next", 7.0, 0),
        ):
            server.submit_nowait(item, timeout=timeout, priority=priority)
        for _ in range(4):
            await model.release()
        assert model.batches[1:] == [["high", "soon"], ["next", "late"], ["none"]]
        await running


@given(
    plan=st.lists(
        st.tuples(
            st.sampled_from([None, 1.0, 2.0, 3.0]),
            st.integers(0, 1),
            st.sampled_from(["put", "put", "take", "take two", "drop"]),
        ),
        max_size=60,
    )
)
def test_a_lane_by_deadline_is_a_sorted_list(plan: list[tuple[float | None, int, str]]) -> None:
    line = WaitingLine(100, QueueOptions(ageing=None, order="deadline"))
    waiting: list[Entry] = []
    for number, (deadline, priority, what) in enumerate(plan):
        if what == "put" or not waiting:
            entry = Entry(number, number, 0.0, deadline, priority)
            line.add(entry, may_block=False)
            waiting.append(entry)
            continue
        waiting.sort(key=lambda each: (-each.priority, each.deadline or 99.0, each.number))
        if what == "take":
            assert line.pop(line.buckets()[0]) is waiting.pop(0)
        elif what == "take two":
            count = min(2, len(waiting))
            assert line.take(line.buckets()[0], count) == [waiting.pop(0) for _ in range(count)]
        else:
            line.remove(waiting.pop(len(waiting) // 2))
    assert line.count == len(waiting)


async def test_replies_keep_the_order_of_submission(clock: ManualClock) -> None:
    model = Model()
    ends: list[Any] = []
    async with lab(
        model, clock, max_batch=2, max_concurrent_batches=2, batches=cb.BatchOptions(preserve_order=True)
    ) as server:
        futures = [server.submit_nowait(n) for n in range(4)]
        for n, future in enumerate(futures):
            future.add_done_callback(lambda _, n=n: ends.append(n))
        await turns()
        assert model.batches == [[0, 1], [2, 3]]
        first, second = model._gates
        second.set_result([ValueError("2"), "<3>"])
        await turns()
        assert ends == []
        assert server.stats().running == 4
        futures[1].cancel()
        await turns()
        assert ends == [1]
        first.set_result(None)
        await turns()
        assert ends == [1, 0, 2, 3]
        assert [await outcome(futures[n]) for n in (0, 3)] == ["<0>", "<3>"]
        assert isinstance(await outcome(futures[2]), ValueError)
        stats = server.stats()
        assert (stats.completed, stats.failed, stats.cancelled, stats.running) == (2, 1, 1, 0)


@pytest.mark.parametrize("how", ["expire", "stop"])
async def test_an_end_that_is_held_back_is_never_lost(clock: ManualClock, how: str) -> None:
    model = Model()
    async with lab(
        model, clock, max_batch=1, max_concurrent_batches=2, batches=cb.BatchOptions(preserve_order=True)
    ) as server:
        slow, quick = server.submit_nowait("slow", timeout=5.0), server.submit_nowait("quick")
        await turns()
        model._gates[1].set_result(None)
        await turns()
        assert not quick.done()
        if how == "expire":
            clock.advance(5.0)
            await turns()
            assert isinstance(await outcome(slow), cb.DeadlineExceeded)
            assert await quick == "<quick>"
        else:
            await server.stop()
            assert [type(await outcome(each)) for each in (slow, quick)] == [cb.ServerStopped] * 2


async def test_ragged_batches_are_joined_without_padding(clock: ManualClock) -> None:
    seen: list[cb.Ragged] = []

    async def model(batch: cb.Ragged) -> list[int]:
        seen.append(batch)
        return [int(item.sum()) for item in batch]

    async with lab(model, clock, batches=cb.BatchOptions(ragged=True)) as server:
        texts = [[1, 2, 3], [4], [5, 6]]
        assert await asyncio.gather(*(server.submit(text) for text in texts)) == [6, 4, 11]
    (batch,) = seen
    assert batch.values.tolist() == [1, 2, 3, 4, 5, 6]
    assert (batch.offsets.tolist(), batch.offsets.dtype, batch.longest) == ([0, 3, 4, 6], np.int32, 3)
    assert np.shares_memory(batch[-1], batch.values)
    with pytest.raises(IndexError):
        batch[3]
    with pytest.raises(ValueError, match="ragged batches are not padded"):
        DynamicBatchingServer[Any, Any](model, batches=cb.BatchOptions(ragged=True, pad=lambda items, size: items))


async def test_items_that_do_not_join_fail_their_batch_and_alone_they_run(clock: ManualClock) -> None:
    async def model(batch: cb.Ragged) -> list[int]:
        return [len(item) for item in batch]

    async with lab(
        model, clock, batches=cb.BatchOptions(ragged=True), idempotent=True, on_error="retry_single"
    ) as server:
        found = await asyncio.gather(server.submit(np.ones((2, 3))), server.submit(np.ones((4, 5))))
        assert found == [2, 4]


async def test_no_batch_is_formed_before_so_many_wait(clock: ManualClock) -> None:
    model = Model()
    async with lab(model, clock, max_batch=8, max_queue=8, batches=cb.BatchOptions(dispatch="idle")) as server:
        server.hold(3)
        futures = [server.submit_nowait(n) for n in range(2)]
        await turns()
        clock.advance(99.0)
        await turns()
        assert model.batches == []
        futures.append(server.submit_nowait(2))
        await turns()
        await model.release_all()
        assert model.batches == [[0, 1, 2]]
        futures.append(server.submit_nowait(3))  # it held once
        await turns()
        await model.release_all()
        server.hold(100)
        futures.append(server.submit_nowait(4))
        server.flush_now()
        await turns()
        await model.release_all()
        server.hold(100)
        futures += [server.submit_nowait(n) for n in range(5, 13)]  # the queue is full
        await turns()
        await model.release_all()
        assert await asyncio.gather(*futures) == [f"<{n}>" for n in range(13)]
        server.hold(2)
        last = server.submit_nowait("last")
        draining = asyncio.create_task(server.drain())
        await turns()
        await model.release_all()
        assert (await last, await draining) == ("<last>", True)


async def test_after_a_failed_batch_each_item_runs_alone(clock: ManualClock) -> None:
    runs: list[list[int]] = []

    async def model(items: list[int]) -> list[int]:
        runs.append(list(items))
        if 2 in items:
            raise ValueError("two")
        return items

    async with lab(model, clock, on_error="retry_single", idempotent=True) as server:
        found = await asyncio.gather(*(server.submit(n) for n in range(4)), return_exceptions=True)
    assert runs == [[0, 1, 2, 3], [0], [1], [2], [3]]
    assert [str(each) for each in found] == ["0", "1", "two", "3"]
    with pytest.raises(ValueError, match='on_error="retry_single" runs items again'):
        DynamicBatchingServer[int, int](model, on_error="retry_single", idempotent=False)
    with pytest.raises(ValueError, match='order must be "arrival" or "deadline"'):
        DynamicBatchingServer[int, int](model, queue=cb.QueueOptions(order="size"))  # type: ignore[arg-type]


async def test_seconds_in_the_queue_are_counted_by_the_size_of_the_batch(clock: ManualClock) -> None:
    model = Model()
    async with lab(model, clock, max_batch=4, batches=cb.BatchOptions(dispatch="idle")) as server:
        futures = [server.submit_nowait(0)]
        await turns()
        futures += [server.submit_nowait(n) for n in (1, 2)]
        clock.advance(0.5)
        await model.release_all()
        await asyncio.gather(*futures)
        assert server.stats().queue_time_by_size == {1: (1, 0.0), 2: (2, 1.0)}
        assert Counter(server.stats().run_time_by_size) == Counter({1: (1, 0.5), 2: (1, 0.0)})


async def test_the_next_batch_begins_before_the_results_of_the_last_one_are_given_out(clock: ManualClock) -> None:
    seen: list[Any] = []

    async def model(items: list[int]) -> list[int]:
        seen.append(("run", items[0]))
        await asyncio.sleep(0)
        return items

    async with lab(model, clock, max_batch=8) as server:
        futures = [server.submit_nowait(n) for n in range(20)]
        for n in (0, 8, 16):
            futures[n].add_done_callback(lambda _, n=n: seen.append(("end", n)))
        assert await asyncio.gather(*futures) == list(range(20))
        await turns()
        assert seen == [("run", 0), ("run", 8), ("end", 0), ("end", 8), ("run", 16), ("end", 16)]
        assert server.stats().batches == 3
        assert (await server.submit(1), server.stats().running) == (1, 0)
