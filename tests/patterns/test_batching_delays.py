"""``timeout_action="delay"``: a request whose deadline passes in the queue goes behind all others."""

import asyncio
import math
from typing import Any

import pytest
from batching_lab import Model, lab, turns
from hypothesis import given
from hypothesis import strategies as st

import callboard as cb
from callboard.actors import ManualClock
from callboard.patterns.requests.entries import Entry
from callboard.patterns.requests.waiting import QueueOptions, WaitingLine


async def test_what_is_late_runs_after_what_is_not_and_ends_in_its_value(clock: ManualClock) -> None:
    model = Model()
    async with lab(
        model, clock, max_batch=1, queue=cb.QueueOptions(ageing=None), batches=cb.BatchOptions(timeout_action="delay")
    ) as server:
        running = server.submit_nowait("running", timeout=0.5)
        await turns()
        late = [server.submit_nowait(name, timeout=0.5, priority=9) for name in ("late 1", "late 2")]
        clock.advance(1.0)
        await turns()
        in_time = [server.submit_nowait("in time", timeout=9.0), server.submit_nowait("without")]
        assert not any(future.done() for future in (running, *late))
        for _ in range(5):
            await model.release()
        assert [batch[0] for batch in model.batches] == ["running", "in time", "without", "late 1", "late 2"]
        assert [future.result() for future in late] == ["<late 1>", "<late 2>"]
        assert all(future.done() for future in (running, *in_time))
        stats = server.stats()
        assert (stats.delayed, stats.expired, stats.completed) == (2, 0, 5)


async def test_a_stream_of_others_may_hold_up_a_late_one_but_draining_runs_it(clock: ManualClock) -> None:
    model = Model()
    async with lab(
        model, clock, max_batch=1, queue=cb.QueueOptions(ageing=0.01), batches=cb.BatchOptions(timeout_action="delay")
    ) as server:
        running = server.submit_nowait(0)
        await turns()
        late = server.submit_nowait("late", timeout=0.1)
        clock.advance(1000.0)
        for number in range(1, 20):
            server.submit_nowait(number)
            await model.release()
        assert not late.done()
        assert model.batches[-1] == [19]
        work = asyncio.ensure_future(server.drain())
        await turns()
        await model.release_all()
        assert await work
        assert (late.result(), running.result()) == ("<late>", "<0>")


async def test_an_estimate_refuses_nothing(clock: ManualClock) -> None:
    model = Model()
    async with lab(model, clock, max_batch=1, batches=cb.BatchOptions(timeout_action="delay")) as server:
        server.submit_nowait("slow")
        await turns()
        clock.advance(5.0)
        await model.release()
        first = server.submit_nowait("a", timeout=10.0)
        await turns()
        second = server.submit_nowait("b", timeout=1.0)  # takes 10 s, by what was measured
        await model.release()
        await model.release()
        assert (first.result(), second.result()) == ("<a>", "<b>")
        with pytest.raises(cb.DeadlineExceeded):
            server.submit_nowait("c", timeout=0.0)  # has passed at the call


async def test_one_that_waits_for_room_is_not_in_the_queue_yet_and_expires(clock: ManualClock) -> None:
    model = Model()
    options: dict[str, Any] = {"max_batch": 1, "max_queue": 1, "queue": cb.QueueOptions(overflow="block")}
    options["batches"] = cb.BatchOptions(timeout_action="delay")
    async with lab(model, clock, **options) as server:
        server.submit_nowait("running")
        await turns()
        server.submit_nowait("queued")
        blocked = asyncio.ensure_future(server.submit("blocked", timeout=0.5))
        await turns()
        clock.advance(1.0)
        await turns()
        with pytest.raises(cb.DeadlineExceeded):
            await blocked


async def test_a_late_one_is_dropped_first(clock: ManualClock) -> None:
    model = Model()
    options: dict[str, Any] = {
        "max_queue": 2,
        "max_batch": 1,
        "queue": cb.QueueOptions(overflow="drop_lowest_priority"),
    }
    async with lab(model, clock, batches=cb.BatchOptions(timeout_action="delay"), **options) as server:
        server.submit_nowait("running")
        await turns()
        late = server.submit_nowait("late", timeout=0.5, priority=5)
        clock.advance(1.0)
        await turns()
        others = [server.submit_nowait(name) for name in "ab"]
        with pytest.raises(cb.QueueFull):
            late.result()
        await model.release_all()
        assert [future.result() for future in others] == ["<a>", "<b>"]


@given(
    plan=st.lists(st.tuples(st.integers(-3, 3), st.sampled_from("ab"), st.booleans()), max_size=12),
    ageing=st.sampled_from([None, 1e-9, 1.0]),
    by_deadline=st.booleans(),
)
def test_late_entries_come_last_in_their_order(
    plan: list[tuple[int, str, bool]], ageing: float | None, by_deadline: bool
) -> None:
    line = WaitingLine(1024, QueueOptions(ageing=ageing, order="deadline" if by_deadline else "arrival"))
    entries = [Entry(n, None, float(n), priority=priority, key=key) for n, (priority, key, _) in enumerate(plan)]
    for entry in entries:
        line.add(entry, may_block=False)
    late = [entry for entry, (_, _, is_late) in zip(entries, plan, strict=True) if is_late]
    for entry in reversed(late):
        line.put_last(entry)
    found = []
    while line.count:
        found.append(line.pop(line.buckets()[0]))
    assert found[len(plan) - len(late) :] == late
    assert {id(entry) for entry in found} == {id(entry) for entry in entries}
    assert all(math.isfinite(line.rank(entry)[0]) for entry in entries if entry not in late)


def test_the_action_is_one_of_two() -> None:
    with pytest.raises(ValueError, match='timeout_action must be "reject" or "delay"'):
        cb.DynamicBatchingServer(lambda items: items, batches=cb.BatchOptions(timeout_action="drop"))  # type: ignore[arg-type]
