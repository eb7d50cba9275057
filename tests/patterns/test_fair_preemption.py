"""A long call yields between its steps: recipient, charge, and end."""

import asyncio
from typing import Any

import pytest
from batching_lab import outcome, turns
from test_fair_server import lab

from callboard.actors import ManualClock
from callboard.patterns.fairshare.server import FairShareScheduler
from callboard.patterns.fairshare.settings import Tenant
from callboard.patterns.requests.errors import DeadlineExceeded, ServerStopped


class Steps:
    """Items are ``(name, steps)``; a step takes a second and costs 1. ``order`` has the names of the steps."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.order = ""
        self.scheduler: FairShareScheduler[Any, Any]

    async def __call__(self, item: tuple[str, int]) -> str:
        name, steps = item
        for step in range(steps):
            if step:
                await self.scheduler.yield_slot(1)
            self.order += name
            self.clock.advance(1.0)
            await asyncio.sleep(0)
        return name


async def test_a_long_job_and_short_ones_alternate(clock: ManualClock) -> None:
    model = Steps(clock)
    async with lab(model, clock, tenants={"long": 1, "short": 1}, cost=lambda item: item[1]) as scheduler:
        model.scheduler = scheduler
        long = scheduler.submit_nowait(("L", 8), tenant="long")
        await asyncio.sleep(0)
        short = [scheduler.submit_nowait(("s", 1), tenant="short") for _ in range(4)]
        await turns(200)
        assert [await each for each in (long, *short)] == ["L", *"ssss"]
        assert model.order.replace("LL", "L") in ("LsLsLsLsL", "LsLsLsLsLL")
        stats = scheduler.stats()
        assert (stats.preempted, stats.completed, stats.served) == (4, 5, 12)
        assert (stats.tenants["long"].served, stats.tenants["short"].served) == (8, 4)
        assert stats.in_flight == stats.queued == stats.running == 0


async def test_without_steps_the_short_ones_wait_for_the_whole_job(clock: ManualClock) -> None:
    async def whole(item: tuple[str, int]) -> str:
        order.append(item[0])
        await asyncio.sleep(0)
        return item[0]

    order: list[str] = []
    async with lab(whole, clock) as scheduler:
        work = [scheduler.submit_nowait((name, 1), tenant=name) for name in "Ls"]
        await asyncio.gather(*work)
        assert order == ["L", "s"]


async def test_two_long_jobs_share_by_weight(clock: ManualClock) -> None:
    model = Steps(clock)
    async with lab(model, clock, tenants={"a": 1, "b": 3}) as scheduler:  # each is declared to cost 1
        model.scheduler = scheduler
        works = [scheduler.submit_nowait((name, 40), tenant=name) for name in "ab"]
        await turns(1000)
        await asyncio.gather(*works)
        first = model.order[: model.order.rindex("b") + 1]
        assert first.count("b") == 40
        assert abs(first.count("a") - 40 / 3) <= 2
        assert scheduler.stats().served == 2 * 39  # 39 steps each gave way; the last one costs nothing of its own


async def test_a_higher_priority_comes_between_and_nothing_costs_nothing(clock: ManualClock) -> None:
    model = Steps(clock)
    async with lab(model, clock, default=Tenant()) as scheduler:
        model.scheduler = scheduler
        low = scheduler.submit_nowait(("l", 3), tenant="t")
        await asyncio.sleep(0)
        high = scheduler.submit_nowait(("H", 3), tenant="t", priority=1)
        await turns(100)
        assert [await low, await high] == ["l", "H"]
        assert model.order == "lHHHll"
        alone = await scheduler.submit(("x", 5), tenant="t")
        assert (alone, scheduler.stats().preempted) == ("x", 1)


async def test_seconds_are_those_that_it_ran(clock: ManualClock) -> None:
    model = Steps(clock)
    async with lab(model, clock, tenants={"a": 1, "b": 1}, charge="seconds") as scheduler:
        model.scheduler = scheduler
        works = [scheduler.submit_nowait((name, 4), tenant=name, cost=4) for name in "ab"]
        await turns(200)
        await asyncio.gather(*works)
        stats = scheduler.stats()
        assert stats.preempted > 0
        assert [stats.tenants[name].served for name in "ab"] == [4, 4]


@pytest.mark.parametrize("how", ["deadline", "cancel", "stop"])
async def test_ends_while_it_waits_in_its_middle(clock: ManualClock, how: str) -> None:
    begin, gate = asyncio.Event(), asyncio.Event()
    left = []

    async def model(item: str) -> str:
        if item == "short":
            await gate.wait()
            return item
        await begin.wait()
        try:
            await scheduler.yield_slot(5)
        finally:
            left.append(item)
        return item

    async with lab(model, clock) as scheduler:
        long = scheduler.submit_nowait("long", tenant="a", timeout=2.0)
        await turns()
        short = scheduler.submit_nowait("short", tenant="b")
        begin.set()
        await turns()
        stats = scheduler.stats()
        assert (stats.queued, stats.running, stats.in_flight, left) == (1, 1, 1, [])
        if how == "deadline":
            clock.advance(2.0)
        elif how == "cancel":
            long.cancel()
        else:
            await scheduler.stop()
        await turns()
        found = await outcome(long)
        ends = {"deadline": DeadlineExceeded, "cancel": asyncio.CancelledError, "stop": ServerStopped}
        assert isinstance(found, ends[how])
        assert left == ["long"]
        assert not isinstance(found, DeadlineExceeded) or found.stage == "run"
        if how != "stop":
            gate.set()
            assert await short == "short"
            assert await scheduler.submit("long", tenant="c") == "long"
        else:
            assert isinstance(await outcome(short), ServerStopped)
        stats = scheduler.stats()
        assert stats.in_flight == stats.queued == stats.running == 0


@pytest.mark.parametrize("how", ["cancel", "deadline"])
async def test_one_that_leaves_in_its_middle_leaves_no_slot_too_many(clock: ManualClock, how: str) -> None:
    begin, gate = asyncio.Event(), asyncio.Event()
    running: list[str] = []

    async def model(item: str) -> str:
        if item == "long":
            await begin.wait()
            await scheduler.yield_slot(5)
            return item
        running.append(item)
        await gate.wait()
        running.remove(item)
        return item

    async with lab(model, clock) as scheduler:
        long = scheduler.submit_nowait("long", tenant="a", timeout=2.0)
        await turns()
        others = [scheduler.submit_nowait(name, tenant="b") for name in ("first", "second")]
        begin.set()
        await turns()
        assert running == ["first"]
        if how == "cancel":
            long.cancel()
        else:
            clock.advance(2.0)
        await turns()
        assert running == ["first"]  # there is one slot
        assert scheduler.stats().in_flight == 1
        gate.set()
        assert [await each for each in others] == ["first", "second"]
        assert isinstance(await outcome(long), asyncio.CancelledError | DeadlineExceeded)


async def test_a_timeout_of_the_calls_own_ends_the_wait(clock: ManualClock) -> None:
    gate: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    waiting: list[asyncio.Task[None]] = []

    async def model(item: str) -> str:
        if item == "long":
            waiting.append(asyncio.ensure_future(scheduler.yield_slot(5)))
            await asyncio.wait(waiting)
            return "cancelled" if waiting[0].cancelled() else "went on"
        await gate
        return item

    async with lab(model, clock) as scheduler:
        long = scheduler.submit_nowait("long", tenant="a")
        await asyncio.sleep(0)
        short = scheduler.submit_nowait("short", tenant="b")
        await turns()
        waiting[0].cancel()
        assert await long == "cancelled"
        gate.set_result(None)
        assert await short == "short"
        assert await scheduler.submit("short", tenant="c") == "short"
        assert scheduler.stats().in_flight == 0


async def test_it_is_for_the_scheduler_s_own_call(clock: ManualClock) -> None:
    async def model(item: float) -> float:
        await scheduler.yield_slot(item)
        return item

    def plain(item: int) -> int:
        asyncio.run(threaded.yield_slot())
        return item

    async with lab(model, clock, tenants={"t": 1}) as scheduler, lab(plain, clock) as threaded:
        with pytest.raises(RuntimeError, match="is for its async function"):
            await scheduler.yield_slot()
        with pytest.raises(ValueError, match="finite number"):
            await scheduler.submit(-1.0, tenant="t")
        assert isinstance(await outcome(threaded.submit(1, tenant="t")), RuntimeError)
        assert await scheduler.submit(2.0, tenant="t") == 2.0
        assert scheduler.stats().tenants["t"].served == 1 + 2  # the first was refused, and costs what was declared
