"""The timer of a server, and its waits for what is to end, in virtual time."""

import asyncio

from batching_lab import turns

from callboard.actors import ManualClock
from callboard.patterns.requests.alarm import Alarm
from callboard.patterns.requests.workers import STOP_TIMEOUT, all_ended


async def test_the_earliest_moment_counts() -> None:
    clock, rung = ManualClock(), list[float]()
    alarm = Alarm(clock, lambda: rung.append(clock.time()))
    for when in (3.0, 1.0, 2.0):
        alarm.set(when)
    assert clock.pending == 1
    clock.advance(4.0)
    assert rung == [1.0]


async def test_it_is_set_again_when_it_has_rung_or_was_cancelled() -> None:
    clock, rung = ManualClock(), list[float]()
    alarm = Alarm(clock, lambda: rung.append(clock.time()))
    alarm.set(1.0)
    alarm.cancel()
    alarm.cancel()  # which changes nothing
    clock.advance(2.0)
    assert (rung, clock.pending) == ([], 0)
    for when in (3.0, 4.0):
        alarm.set(when)
        clock.advance(1.0)
    assert rung == [3.0, 4.0]


async def test_a_moment_that_has_passed_rings_at_once() -> None:
    clock, rung = ManualClock(5.0), list[float]()
    alarm = Alarm(clock, lambda: rung.append(clock.time()))
    alarm.set(1.0)
    clock.advance(0.0)
    assert rung == [5.0]


async def test_tasks_are_waited_for_but_not_the_one_that_waits() -> None:
    clock, go = ManualClock(), asyncio.Event()
    task, current = asyncio.create_task(go.wait()), asyncio.current_task()
    assert current is not None
    assert await all_ended([current], clock)
    asyncio.get_running_loop().call_soon(go.set)
    assert await all_ended([current, task], clock)
    assert task.done()
    assert clock.pending == 0


async def test_what_does_not_end_in_time_is_left_alone() -> None:
    clock, go = ManualClock(), asyncio.Event()
    task = asyncio.create_task(go.wait())
    waiting = asyncio.create_task(all_ended([task], clock))
    await turns()
    assert not waiting.done()
    clock.advance(STOP_TIMEOUT)
    assert not await waiting
    assert not task.done()
    go.set()
    await task
