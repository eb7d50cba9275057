"""Continuous batching: sequences of each step, effects of its results, and cleanup after a sequence."""

import asyncio
from typing import Any

import numpy as np
import pytest
from batching_lab import outcome, turns
from step_lab import Steps, stepping

import callboard as cb
from callboard.actors import ManualClock


async def test_a_sequence_joins_when_another_one_ends() -> None:
    steps = Steps(free=True)
    async with stepping(steps, max_batch=2) as server:
        found = await asyncio.gather(*(server.submit(n) for n in (5, 2, 3)))
        assert found == [list(range(n)) for n in (5, 2, 3)]
        stats = server.stats()
    assert steps.seen[:2] == [[0, 1]] * 2
    assert all(2 in step for step in steps.seen[2:5])  # 1 gave its last part with its end
    assert (stats.completed, stats.parts, stats.steps) == (3, 10, len(steps.seen))
    assert stats.batch_size.max == 2
    assert sorted(steps.closed) == [0, 1, 2]


async def test_a_stream_gets_each_part_when_its_step_is_done() -> None:
    steps = Steps()
    async with stepping(steps) as server:
        stream = server.stream(3)
        reading = asyncio.ensure_future(anext(stream))
        await turns()
        await steps.go()
        assert await reading == 0
        await steps.go()
        assert await anext(stream) == 1
        await steps.go()
        await steps.go()
        assert [part async for part in stream] == [2]
        assert server.stats().first_part_time.count == 1


async def test_a_cancelled_sequence_is_in_no_further_step() -> None:
    steps = Steps()
    async with stepping(steps) as server:
        kept, gone = (asyncio.create_task(server.submit(n)) for n in (4, 9))
        await turns()
        gone.cancel()  # in the middle of a step
        await steps.go()
        steps.free = True
        await steps.go()
        assert await kept == [0, 1, 2, 3]
        assert isinstance(await outcome(gone), asyncio.CancelledError)
    assert steps.seen[0] == [0, 1]
    assert all(step == [0] for step in steps.seen[1:])
    assert steps.closed == [1, 0]


async def test_a_deadline_in_the_queue_and_in_the_middle() -> None:
    clock, steps = ManualClock(), Steps()
    async with stepping(steps, clock, max_batch=1) as server:
        first = asyncio.create_task(server.submit(9, timeout=1.0))
        await turns()
        second = asyncio.create_task(server.submit(1, timeout=0.5))
        await turns()
        clock.advance(0.5)
        assert (await outcome(second)).stage == "queue"
        await steps.go()
        clock.advance(0.5)
        assert (await outcome(first)).stage == "run"
        await steps.go()
        assert server.stats().expired == 2
    assert steps.seen == [[0], [0]]


async def test_a_slow_reader_is_left_out_and_the_others_go_on() -> None:
    clock, steps = ManualClock(), Steps(free=True)
    async with stepping(steps, clock) as server:
        stream = server.stream(20, buffer=2, patience=3.0)
        assert await anext(stream) == 0
        await turns()
        assert await server.submit(6) == list(range(6))
        assert steps.seen[-1] == [1]
        assert sum(0 in step for step in steps.seen) == 3
        assert await anext(stream) == 1
        await turns()
        assert sum(0 in step for step in steps.seen) == 4
        clock.advance(3.0)
        await turns()
        assert [await anext(stream) for _ in range(2)] == [2, 3]
        with pytest.raises(cb.SlowReader):
            await anext(stream)
        assert server.stats().failed == 1
    assert 0 in steps.closed
    assert clock.pending == 0


async def test_errors_of_one_sequence_and_of_a_step() -> None:
    steps = Steps()
    async with stepping(steps) as server:
        tasks = [asyncio.create_task(server.submit(n)) for n in (2, 2, 2)]
        await turns()
        await steps.go([ValueError("this one"), 0, cb.NOTHING])
        assert str(await outcome(tasks[0])) == "this one"
        await steps.go([1])
        errors = [await outcome(task) for task in tasks[1:]]
        assert [type(error) for error in errors] == [cb.BadBatchResult] * 2
        assert errors[0] is not errors[1]
        last = asyncio.create_task(server.submit(1))
        await turns()
        await steps.go(RuntimeError("the step"))
        assert str(await outcome(last)) == "the step"
        stats = server.stats()
    assert (stats.failed, stats.steps, stats.failed_steps) == (4, 1, 2)
    assert not steps.open


async def test_a_lost_context_begins_sequences_again_from_their_parts() -> None:
    steps = Steps()
    async with stepping(steps, max_batch=3) as server:
        tasks = [asyncio.create_task(server.submit(n)) for n in (4, 4)]
        held = server.stream(9, buffer=1)
        reading = asyncio.ensure_future(anext(held))
        await turns()
        await steps.go()
        assert await reading == 0
        await steps.go()  # two parts of the first; the third waits for its reader
        await steps.go()
        assert steps.seen[-1] == [0, 1]
        await steps.go(cb.ContextPoisoned("lost"))
        steps.free = True
        await steps.go()
        assert await asyncio.gather(*tasks) == [[0, 1, 2, 3]] * 2
        assert [await anext(held) for _ in range(3)] == [1, 2, 3]
        assert server.stats().repeated == 2
        await held.aclose()
    assert not steps.open


async def test_the_youngest_gives_way_when_the_sequences_have_grown() -> None:
    steps = Steps(free=True)
    async with stepping(steps, max_batch_cost=12, part_cost=1, cost=lambda _: 1) as server:
        found = await asyncio.gather(*(server.submit(n) for n in (8, 8, 6)))
        stats = server.stats()
    assert found == [list(range(n)) for n in (8, 8, 6)]
    assert stats.preempted >= 1
    assert stats.batch_cost == 0
    assert sum(step.count(0) for step in steps.seen) <= 9  # the oldest one was never interrupted
    assert not steps.open


async def test_a_sequence_that_outgrows_the_batch_by_itself() -> None:
    steps = Steps(free=True)
    async with stepping(steps, max_batch_cost=5, part_cost=1, cost=lambda _: 1) as server:
        error = await outcome(server.submit(9))
        assert isinstance(error, cb.ItemTooLarge)
        assert "costs 6 after 5 parts, and max_batch_cost is 5" in str(error)
        with pytest.raises(cb.ItemTooLarge, match="the item costs 6"):
            await server.submit(1, cost=6)
        assert await server.submit(3) == [0, 1, 2]
    assert not steps.open


async def test_an_urgent_request_takes_a_place() -> None:
    steps = Steps()
    async with stepping(steps, max_batch=2, preemption="for_priority") as server:
        plain = [asyncio.create_task(server.submit(3)) for _ in range(2)]
        await turns()
        urgent = asyncio.create_task(server.submit(1, priority=1))
        await turns()
        await steps.go()
        assert steps.seen[-1] == [0, 2]
        steps.free = True
        await steps.go()
        assert await urgent == [0]
        assert await asyncio.gather(*plain) == [[0, 1, 2]] * 2
        assert server.stats().preempted == 1


async def test_prompts_join_a_few_at_a_time() -> None:
    steps = Steps(free=True)
    async with stepping(steps, max_admitted_cost=10) as server:
        await asyncio.gather(*(server.submit(4, cost=cost) for cost in (6, 4, 5, 20)))
    assert steps.seen[:3] == [[0, 1], [0, 1, 2], [0, 1, 2, 3]]


@pytest.mark.parametrize("executor", ["loop", "thread"])
async def test_a_plain_function_that_gives_an_array(executor: Any) -> None:
    def step(slots: list[Any]) -> Any:
        return np.array([slot.item + len(slot.parts) for slot in slots])

    async with stepping(step, executor=executor) as server:
        stream = server.stream(5)
        assert [await anext(stream) for _ in range(3)] == [5, 6, 7]
        await stream.aclose()
        assert server.stats().cancelled == 1


async def test_drain_finishes_and_stop_ends() -> None:
    steps = Steps(free=True)
    async with stepping(steps, max_batch=1) as server:
        tasks = [asyncio.create_task(server.submit(5)) for _ in range(3)]
        await turns(2)
        assert await server.drain()
        assert await asyncio.gather(*tasks) == [[0, 1, 2, 3, 4]] * 3
    steps = Steps()
    async with stepping(steps, max_batch=1) as server:
        tasks = [asyncio.create_task(server.submit(5)) for _ in range(2)]
        await turns()
        await server.stop()
        assert [type(await outcome(task)) for task in tasks] == [cb.ServerStopped] * 2
        assert server.stats().stopped == 2
    assert not steps.open


async def test_a_hook_that_fails_harms_no_one(caplog: pytest.LogCaptureFixture) -> None:
    def close(_: Any) -> None:
        raise KeyError("close")

    server = cb.ContinuousBatchingServer[int, int](Steps(free=True), close=close)
    async with server:
        assert await server.submit(2) == [0, 1]
        await turns()
    assert "close() of a sequence failed" in caplog.text


@pytest.mark.parametrize(
    "options, says",
    [
        ({"max_batch": 0}, "max_batch must be at least 1"),
        ({"max_batch_cost": 0}, "max_batch_cost must be positive"),
        ({"max_admitted_cost": -1}, "max_admitted_cost must be positive"),
        ({"part_cost": float("nan")}, "part_cost must be a finite number"),
        ({"part_cost": 1, "max_batch_cost": 9, "preemption": "never"}, 'for preemption="never", let cost count'),
        ({"preemption": "sometimes"}, "is not a valid Preemption"),
    ],
)
def test_settings_that_are_refused(options: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        cb.ContinuousBatchingServer(Steps(), **options)
