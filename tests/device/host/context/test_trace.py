"""Times of ops by events around them."""

from typing import Any, ClassVar

import pytest

from callboard.core.backend import UserEvent
from callboard.core.errors import DriverError, UnsupportedOp
from callboard.device.host.context.trace import KernelTrace


class Clock:
    """The time of host and device, set by the test."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Event(UserEvent):
    """Reached when it is recorded, or when the test says so."""

    made: ClassVar[list["Event"]] = []

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self.clock = clock
        self.at = 0.0
        self.closed = False
        Event.made.append(self)

    def record(self, stream: Any) -> None:
        self.at = self.clock.now + stream.late

    def since(self, start: UserEvent) -> float:
        assert isinstance(start, Event)
        if self.at > self.clock.now:
            raise DriverError("not ready")
        return self.at - start.at

    def block(self, stream: Any) -> None: ...

    def export(self) -> bytes:
        return b""

    def close(self) -> None:
        self.closed = True


class Stream:
    """``late``: seconds from now until what is enqueued now is reached."""

    id = 3

    def __init__(self) -> None:
        self.late = 0.0


@pytest.fixture
def clock() -> Clock:
    Event.made.clear()
    return Clock()


def launch(trace: KernelTrace, clock: Clock, stream: Any, op: int, *, waits: float, takes: float) -> None:
    """An op whose stream is at work for ``waits`` seconds before it, and then takes ``takes``."""
    began = clock.now
    stream.late = waits
    start = trace.mark(stream)
    stream.late = waits + takes
    trace.launched(op, "blas.gemm", stream, began, start, 0.0 if waits else clock.now)


def test_times_are_those_of_the_device(clock: Clock) -> None:
    trace, stream = KernelTrace(1, lambda: Event(clock), clock), Stream()
    launch(trace, clock, stream, 1, waits=0.0, takes=2.0)
    launch(trace, clock, stream, 2, waits=2.5, takes=1.0)  # the stream paused for half a second
    clock.now += 10
    trace.completed(1, ok=True)
    trace.completed(2, ok=True)
    assert [record[-2:] for record in trace.take()] == [(100.0, 2.0), (102.5, 1.0)]
    assert trace.open == {}


def test_events_are_used_again_and_destroyed_at_the_end(clock: Clock) -> None:
    trace, stream = KernelTrace(1, lambda: Event(clock), clock), Stream()
    for op in range(20):
        launch(trace, clock, stream, op, waits=0.0, takes=0.5)
        clock.now += 1
        trace.completed(op, ok=True)
    launch(trace, clock, stream, 99, waits=0.0, takes=0.5)
    assert len(Event.made) <= 4
    trace.close()
    assert all(event.closed for event in Event.made)


def test_an_event_that_is_not_reached_leaves_the_time_unknown(clock: Clock) -> None:
    trace, stream = KernelTrace(1, lambda: Event(clock), clock), Stream()
    launch(trace, clock, stream, 1, waits=0.0, takes=2.0)
    trace.completed(1, ok=True)
    [record] = trace.take()
    assert record[-2:] == (0.0, 0.0)


def test_a_backend_without_events_gives_the_other_times(clock: Clock) -> None:
    def none() -> UserEvent:
        raise UnsupportedOp("no events")

    trace, stream = KernelTrace(1, none, clock), Stream()
    launch(trace, clock, stream, 1, waits=0.0, takes=2.0)
    clock.now += 3
    trace.completed(1, ok=False)
    assert trace.take() == [(1, "blas.gemm", 3, 100.0, 100.0, 103.0, False, 0.0, 0.0)]


def test_one_in_so_many_is_recorded() -> None:
    trace = KernelTrace(5, lambda: pytest.fail("no op was launched"))
    assert [not trace.skips() for _ in range(11)] == [n % 5 == 0 for n in range(11)]


def test_a_call_takes_the_time_of_its_method(clock: Clock) -> None:
    trace = KernelTrace(1, lambda: Event(clock), clock)
    trace.called(1, "actor:m.f", 3, 90.0, 95.0, done=True)
    trace.called(2, "actor:m.f", 3, 95.0, 96.0, done=False)  # its stream is still at work
    clock.now = 104.0
    trace.completed(1, ok=True)
    trace.completed(2, ok=True)
    assert [record[2:] for record in trace.take()] == [
        (3, 90.0, 95.0, 104.0, True, 90.0, 5.0),
        (3, 95.0, 96.0, 104.0, True, 95.0, 9.0),
    ]
    trace.called(3, "actor:m.f", 3, 90.0, 95.0, done=True)
    trace.close()
    assert Event.made == []


def test_one_call_in_so_many_is_recorded_beside_one_op_in_so_many(clock: Clock) -> None:
    trace = KernelTrace(3, lambda: Event(clock), clock)
    assert [trace.skips_call() for _ in range(7)] == [False, True, True, False, True, True, False]
    assert not trace.skips()
    trace.measure(0)
    assert trace.skips_call()
    trace.measure(1)
    assert [trace.skips_call() for _ in range(3)] == [False] * 3
