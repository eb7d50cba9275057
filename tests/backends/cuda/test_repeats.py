"""Repeated launches. The suites on a GPU show that graphs do the same as the launches."""

from collections.abc import Callable
from typing import Any

import pytest

from callboard.backends.cuda import repeats
from callboard.backends.cuda.repeats import Repeats
from callboard.core.errors import ContextPoisoned, LibraryError, OutOfMemory, UnsupportedOp


class Graph:
    def __init__(self, work: list[Any]) -> None:
        self.work = work
        self.closed = 0

    def launch(self, stream: "Stream") -> None:
        assert not self.closed
        if stream.fails is not None:
            raise stream.fails("no")
        stream.done += [("again", *one) for one in self.work]

    def close(self) -> None:
        self.closed += 1


class Event:
    reached = False

    def query(self) -> bool:
        return self.reached


class Stream:
    """Notes what is enqueued on it."""

    def __init__(self, fails: type[Exception] | None = None) -> None:
        self.done: list[Any] = []
        self.recording = False
        self.graphs: list[Graph] = []
        self.events: list[Event] = []
        self.recycled = 0
        self.idle = True
        self.closed = False
        self.fails = fails

    def capture(self, enqueue: Callable[[], None]) -> Graph:
        if self.fails is not None:
            raise self.fails("no")
        enqueue()
        graph = Graph(self.done.copy())
        self.done.clear()
        self.graphs.append(graph)
        return graph

    def query(self) -> bool:
        return self.idle

    def record(self) -> Event:
        self.events.append(Event())
        return self.events[-1]

    def recycle(self, event: Event) -> None:
        self.recycled += 1

    def close(self) -> None:
        self.closed = True


class Device:
    def __init__(self, fails: type[Exception] | None = None) -> None:
        self.streams: list[Stream] = []
        self._fails = fails

    def recorder(self) -> Stream:
        self.streams.append(Stream(self._fails))
        return self.streams[-1]


def run(stream: Stream, *arguments: Any) -> None:
    stream.done.append(arguments)


def made(device: Device) -> tuple[Repeats, Any]:
    kept = Repeats(device)  # type: ignore[arg-type]
    return kept, kept.of(run)


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repeats, "WORTH", 3)


def test_a_launch_is_recorded_when_it_has_come_often_enough() -> None:
    device, stream = Device(), Stream()
    _, launch = made(device)
    for _ in range(5):
        launch(stream, 1, 2, None, 0.5)
    once = (1, 2, None, 0.5)
    assert stream.done == [once] * 2 + [("again", *once)] * 3
    (own,) = device.streams
    assert own.done == [], "recorded on a stream of its own, and run on none"


@pytest.mark.parametrize(
    "others",
    [(3, 2, None, 0.5), (1, 3, None, 0.5), (1, 2, None, 0.25), (1, 2, None, -0.0), (1, 2, None, float("nan"))],
    ids=str,
)
def test_other_arguments_are_another_launch(others: tuple[Any, ...]) -> None:
    stream = Stream()
    _, launch = made(Device())
    one = (1, 2, None, 0.0 if others[-1] == 0 else 0.5)
    for arguments in [one] * 3 + [others] * 2 + [one] + [others] * 2:
        launch(stream, *arguments)
    wanted = [one, one, ("again", *one), others, others, ("again", *one), ("again", *others), ("again", *others)]
    assert repr(stream.done) == repr(wanted)


@pytest.mark.parametrize("arguments", [([1, 2], 3), (1, 2, 1j), (1,)])
def test_what_is_more_than_addresses_and_reals_is_not_recorded(arguments: tuple[Any, ...]) -> None:
    device, stream = Device(), Stream()
    _, launch = made(device)
    for _ in range(10):
        launch(stream, *arguments)
    assert stream.done == [arguments] * 10
    assert not device.streams


def test_nothing_is_recorded_while_somebody_else_records() -> None:
    device, stream = Device(), Stream()
    _, launch = made(device)
    for recording in [False] * 3 + [True] * 5 + [False]:
        stream.recording = recording
        launch(stream, 1, 2)
    assert stream.done == [(1, 2)] * 2 + [("again", 1, 2)] + [(1, 2)] * 5 + [("again", 1, 2)]


def test_nothing_is_recorded_while_the_device_has_work() -> None:
    device, stream = Device(), Stream()
    _, launch = made(device)
    stream.idle = False
    for _ in range(5):
        launch(stream, 1, 2)
    assert stream.done == [(1, 2)] * 5
    stream.idle = True
    launch(stream, 1, 2)
    stream.idle = False
    launch(stream, 1, 2)  # what has been recorded is enqueued whatever is in flight
    assert stream.done[5:] == [("again", 1, 2)] * 2


def test_a_plan_is_closed_behind_its_recordings() -> None:
    class Plan:
        closed = 0

        def __call__(self, stream: Stream, *arguments: Any) -> None:
            stream.done.append(arguments)

        def close(self) -> None:
            assert all(graph.closed for graph in device.streams[0].graphs)
            self.closed += 1

    device, stream, plan = Device(), Stream(), Plan()
    launch: Any = Repeats(device).of(plan)  # type: ignore[arg-type]
    for _ in range(4):
        launch(stream, 1, 2)
    launch.close()
    assert plan.closed == 1


def test_where_nothing_can_be_recorded_all_is_launched(monkeypatch: pytest.MonkeyPatch) -> None:
    device, stream = Device(), Stream()

    def recorder() -> Stream:
        raise UnsupportedOp("the driver is too old")

    monkeypatch.setattr(device, "recorder", recorder)
    _, launch = made(device)
    for _ in range(10):
        launch(stream, 1, 2)
    assert stream.done == [(1, 2)] * 10


def test_what_cannot_be_recorded_is_launched_and_not_tried_again() -> None:
    device, stream = Device(LibraryError), Stream()
    _, launch = made(device)
    for _ in range(10):
        launch(stream, 1, 2)
    assert stream.done == [(1, 2)] * 10
    device.streams[0].fails = None
    for _ in range(10):
        launch(stream, 1, 2)
    assert not device.streams[0].graphs


def test_a_recording_that_cannot_be_enqueued_is_given_back() -> None:
    device, stream = Device(), Stream(OutOfMemory)
    _, launch = made(device)
    for _ in range(10):
        launch(stream, 1, 2)
    assert stream.done == [(1, 2)] * 10
    assert [g.closed for g in device.streams[0].graphs] == [1]


def test_a_dead_context_is_told() -> None:
    _, launch = made(Device(ContextPoisoned))
    stream = Stream()
    launch(stream, 1, 2)
    launch(stream, 1, 2)
    with pytest.raises(ContextPoisoned):
        launch(stream, 1, 2)


def test_recordings_are_bounded_and_close_behind_their_last_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repeats, "MOST", 3)
    device, stream = Device(), Stream()
    kept, launch = made(device)

    def often(address: int) -> None:
        for _ in range(3):
            launch(stream, address, 0)

    for address in range(4):  # each has been used since it was made: the oldest goes
        often(address)
    graphs = device.streams[0].graphs
    assert len(stream.events) == 1
    launch(stream, 1, 0)  # the oldest of those that are left is used again
    often(5)  # so the next one goes
    stream.done.clear()
    for address in (1, 3, 5):
        launch(stream, address, 0)
    assert stream.done == [("again", address, 0) for address in (1, 3, 5)]
    assert [g.closed for g in graphs] == [0] * 5, "the device may still be at those that were dropped"
    for event in stream.events:
        event.reached = True
    often(6)
    assert sum(g.closed for g in graphs) == 2
    assert stream.recycled == 2
    kept.close()
    assert [g.closed for g in graphs] == [1] * 6
    assert device.streams[0].closed


def test_a_plan_takes_its_recordings_with_it() -> None:
    device, stream = Device(), Stream()
    kept, launch = made(device)
    other = kept.of(run)
    for _ in range(3):
        launch(stream, 1, 2)
        other(stream, 1, 2)
    launch.close()
    launch.close()
    assert sorted(g.closed for g in device.streams[0].graphs) == [0, 1]
    stream.done.clear()
    other(stream, 1, 2)
    assert stream.done == [("again", 1, 2)]
    kept.close()
    other.close()
    assert [g.closed for g in device.streams[0].graphs] == [1, 1]


def test_what_is_counted_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repeats, "SEEN", 4)
    device, stream = Device(), Stream()
    _, launch = made(device)
    for address in [*range(5), *range(5), *range(5)]:
        launch(stream, address, 0)
    assert not device.streams, "forgotten before they came a third time"
