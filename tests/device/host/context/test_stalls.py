"""Stalls: which stream counts as standing still."""

from collections import deque
from typing import Any

import pytest

from callboard.device.host.context.stalls import Stalls
from callboard.device.host.context.timelines import Timeline

LIMIT = 16.0
"""Seconds, so that there is a look every second."""


def timeline(issued: int = 0, completed: int = 0) -> Timeline:
    made = Timeline(stream=None)  # type: ignore[arg-type]
    made.issued, made.completed, made.ops = issued, completed, deque[Any]()
    return made


def test_what_finishes_nothing_for_the_limit_stands_still() -> None:
    stalls, busy, idle = Stalls(LIMIT), timeline(issued=3), timeline()
    assert [stalls.poll([idle, busy], float(t)) for t in range(16)] == [None] * 16
    assert stalls.poll([idle, busy], 16.0) is busy


def test_whatever_is_finished_begins_the_time_anew() -> None:
    stalls, busy = Stalls(LIMIT), timeline(issued=9)
    for t in range(100):
        busy.completed = t // 15
        assert stalls.poll([busy], float(t)) is None
        busy.issued = busy.completed + 5
    busy.completed = busy.issued
    assert stalls.poll([busy], 200.0) is None
    busy.issued += 1  # it had nothing to do meanwhile, and that was no stall
    assert [stalls.poll([busy], 300.0 + t) for t in range(16)] == [None] * 16
    assert stalls.poll([busy], 316.0) is busy


def test_a_host_that_did_not_run_has_not_seen_a_stall() -> None:
    """It was stopped, and so was the thread of its stream; the stream gets the time of most looks to go on."""
    stalls, busy = Stalls(LIMIT), timeline(issued=3)
    assert stalls.poll([busy], 0.0) is None
    assert stalls.poll([busy], 3600.0) is None
    assert [stalls.poll([busy], 3600.0 + t) for t in range(1, 14)] == [None] * 13
    assert stalls.poll([busy], 3614.0) is busy


class Stream:
    """Notes nothing: what is done is said by the test."""

    def record(self) -> Any:
        return object()

    def wait(self, event: Any) -> None: ...


class Streams:
    """Timelines with ops that wait for one another, named by ``(timeline, seq)``."""

    def __init__(self, *names: str) -> None:
        self.timelines = {name: Timeline(stream=Stream()) for name in names}  # type: ignore[arg-type]

    def op(self, name: str, *after: tuple[str, int]) -> None:
        for other, seq in after:
            self.timelines[name].follow(self.timelines[other], seq)
        self.timelines[name].issued += 1

    def record_event(self) -> None:
        for timeline in self.timelines.values():
            timeline.record_event()

    def complete(self, name: str, seq: int) -> None:
        timeline = self.timelines[name]
        while timeline.events and timeline.events[0][0] <= seq:
            timeline.events.popleft()
        timeline.completed = seq

    def stuck(self, stalls: Stalls, begin: float = 0.0) -> str | None:
        """The name of what stands still after the limit."""
        for t in range(17):
            found = stalls.poll(self.timelines.values(), begin + t)
            if found is not None:
                return next(name for name, timeline in self.timelines.items() if timeline is found)
        return None


def test_who_waits_for_another_stream_is_judged_when_that_has_done_its_part() -> None:
    streams, stalls = Streams("a", "b"), Stalls(LIMIT)
    streams.op("b")
    streams.op("b")
    streams.op("a", ("b", 2))
    assert streams.stuck(stalls) == "b"  # and not the one before it in the list
    streams.complete("b", 2)
    assert streams.stuck(stalls, 17.0) == "a"  # the time runs from the last look at which it waited


A, B, C = "memory", "blas", "fft"
CROSSINGS: dict[str, tuple[list[tuple[str, *tuple[tuple[str, int], ...]]], dict[str, int], str]] = {
    "put, gemm, get behind a put": ([(A,), (B, (A, 1)), (A, (B, 1))], {}, A),
    "the gemm of the same": ([(A,), (B, (A, 1)), (A, (B, 1))], {A: 1}, B),
    "the get of the same": ([(A,), (B, (A, 1)), (A, (B, 1))], {A: 1, B: 1}, A),
    "the root of a chain": ([(C,), (B, (C, 1)), (A, (B, 1)), (C, (A, 1)), (B, (C, 2))], {}, C),
    "the middle of a chain": ([(C,), (B, (C, 1)), (A, (B, 1)), (C, (A, 1)), (B, (C, 2))], {C: 1}, B),
    "work before the wait": ([(A,), (A,), (B,), (A, (B, 1)), (A,)], {A: 1, B: 0}, B),
    "two that are waited for": ([(A,), (B,), (C, (A, 1), (B, 1))], {A: 1}, B),
    "what waits for nothing unfinished": ([(A,), (B, (A, 1)), (B,)], {A: 1, B: 1}, B),
}


@pytest.mark.parametrize("sealed", [True, False])
@pytest.mark.parametrize("case", CROSSINGS)
def test_the_stream_at_the_root_of_the_waits_is_found(case: str, sealed: bool) -> None:
    """Whatever is enqueued behind what stands still, also where streams wait for each other in turn."""
    ops, done, root = CROSSINGS[case]
    streams = Streams(A, B, C)
    for name, *after in ops:
        streams.op(name, *after)
    if sealed:
        streams.record_event()
    for name, seq in done.items():
        streams.complete(name, seq)
    assert streams.stuck(Stalls(LIMIT)) == root


def test_waits_of_finished_work_are_forgotten() -> None:
    streams = Streams("a", "b")
    for n in range(1, 1000):
        streams.op("a")
        streams.op("b", ("a", n))
        streams.complete("a", n)
        streams.complete("b", n)
    assert len(streams.timelines["b"]._follows) <= 1


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
        assert stalls.poll(Counted(), limit * step / 1000) is None
    assert looks <= Stalls.LOOKS + 1
