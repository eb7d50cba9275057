"""Stalls: which stream counts as standing still."""

from collections import deque
from typing import Any

import pytest

from callboard.device.context.stalls import Stalls
from callboard.device.context.tracks import Track

LIMIT = 16.0
"""Seconds, so that there is a look every second."""


def track(issued: int = 0, completed: int = 0) -> Track:
    made = Track(stream=None)  # type: ignore[arg-type]
    made.issued, made.completed, made.ops = issued, completed, deque[Any]()
    return made


def test_what_finishes_nothing_for_the_limit_stands_still() -> None:
    stalls, busy, idle = Stalls(LIMIT), track(issued=3), track()
    assert [stalls.look([idle, busy], float(t)) for t in range(16)] == [None] * 16
    assert stalls.look([idle, busy], 16.0) is busy


def test_whatever_is_finished_begins_the_time_anew() -> None:
    stalls, busy = Stalls(LIMIT), track(issued=9)
    for t in range(100):
        busy.completed = t // 15
        assert stalls.look([busy], float(t)) is None
        busy.issued = busy.completed + 5
    busy.completed = busy.issued
    assert stalls.look([busy], 200.0) is None
    busy.issued += 1  # it had nothing to do meanwhile, and that was no stall
    assert stalls.look([busy], 300.0) is None
    assert stalls.look([busy], 315.0) is None
    assert stalls.look([busy], 316.0) is busy


def test_who_waits_for_another_stream_is_judged_when_that_has_done_its_part() -> None:
    stalls, first, second = Stalls(LIMIT), track(issued=2), track(issued=1)
    second.passed[first] = 2
    for t in range(16):
        assert stalls.look([second, first], float(t)) is None
    assert stalls.look([second, first], 16.0) is first  # and not the one before it in the list
    first.completed = 2
    assert stalls.look([second, first], 17.0) is None
    for t in range(18, 32):
        assert stalls.look([second, first], float(t)) is None
    assert stalls.look([second, first], 32.0) is second  # the time runs from the last look at which it waited


@pytest.mark.parametrize("limit", [0.1, 30.0])
def test_it_looks_a_few_times_within_the_limit_only(limit: float) -> None:
    looks = 0

    class Counted:
        def __iter__(self) -> Any:
            nonlocal looks
            looks += 1
            return iter(())

    stalls = Stalls(limit)
    for step in range(1000):
        assert stalls.look(Counted(), limit * step / 1000) is None
    assert looks <= Stalls.LOOKS + 1
