"""Streams of accelerators over a stand-in of PyTorch's: no device of such a kind was at hand."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from callboard.backends.torch import stream as streams
from callboard.backends.torch.stream import AcceleratorStream


class Point:
    """An event of the device: reached when the test says so."""

    def __init__(self) -> None:
        self.reached = False

    def query(self) -> bool:
        return self.reached

    def synchronize(self) -> None:
        self.reached = True


class Queue:
    """PyTorch's stream: keeps what it is asked for, in order."""

    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.idle = True

    def __enter__(self) -> None:
        self.calls.append("entered")

    def __exit__(self, *error: object) -> None:
        pass

    def record_event(self) -> Point:
        point = Point()
        self.calls.append(point)
        return point

    def wait_event(self, point: Point) -> None:
        self.calls.append(("wait", point))

    def query(self) -> bool:
        return self.idle

    def synchronize(self) -> None:
        self.calls.append("synchronize")


@pytest.fixture
def pair(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[AcceleratorStream, AcceleratorStream]]:
    monkeypatch.setattr(streams, "torch", SimpleNamespace(Stream=lambda device: Queue()))
    device: Any = SimpleNamespace(torch_device="accelerator", use=lambda: None)
    made = AcceleratorStream(0, device), AcceleratorStream(1, device)
    yield made
    for one in made:
        one.close()


def settled(stream: AcceleratorStream) -> list[Any]:
    """What its queue has been asked for, when the worker has done all it was given."""
    stream.record().block()
    calls: list[Any] = stream._queue.calls
    return calls


def test_an_event_is_reached_when_the_device_has_passed_it(pair: Any) -> None:
    stream, _ = pair
    done: list[int] = []
    stream.submit(done.append, 1)
    event = stream.record()
    event.block()
    assert done == [1]
    assert not event.query()
    event.point.reached = True
    assert event.query()
    assert stream._queue.calls[0] == "entered"


def test_a_failure_of_the_work_is_that_of_the_event(pair: Any) -> None:
    stream, _ = pair
    status = stream.run("blas", lambda: 1 / 0)
    stream.record().block()
    with pytest.raises(Exception, match="ZeroDivisionError"):
        status.check(b"")


def test_streams_wait_for_each_other_on_the_device(pair: Any) -> None:
    one, other = pair
    event = one.record()
    event.block()
    other.wait(event)
    assert ("wait", event.point) in settled(other)
    with pytest.raises(TypeError, match="a stream of PyTorch waits for events of such streams"):
        other.wait(object())


def test_a_stream_is_idle_when_worker_and_device_are(pair: Any) -> None:
    stream, _ = pair
    settled(stream)
    stream._queue.idle = False
    assert not stream.query()
    assert stream.waited is stream


def test_where_pytorch_has_no_streams_an_event_waits_for_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(device: object) -> None:
        raise RuntimeError("no streams")

    waits: list[int] = []
    there = SimpleNamespace(Stream=none, accelerator=SimpleNamespace(synchronize=lambda: waits.append(1)))
    monkeypatch.setattr(streams, "torch", there)
    device: Any = SimpleNamespace(torch_device="mps", use=lambda: None)
    stream = AcceleratorStream(0, device)
    try:
        event = stream.record()
        event.synchronize()
        assert event.query()
        assert waits == [1]
    finally:
        stream.close()
