"""What waits for what in a capture of several streams."""

import functools
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from callboard.device.host.context.admission.graphs.lanes import Lanes, Task


class Stream:
    """Notes, for each item, all that comes before it."""

    def __init__(self) -> None:
        self.before: frozenset[int] = frozenset()
        self.captured = False

    def capture(self, enqueue: Any, into: Any) -> Any:
        self.captured = True
        enqueue()
        self.captured = False
        return self.before

    def record(self) -> frozenset[int]:
        assert self.captured, "the event would not be the capture's"
        return self.before

    def wait(self, event: frozenset[int]) -> None:
        self.before |= event
        self.captured = True

    def recycle(self, event: frozenset[int]) -> None:
        pass


class Device:
    def __init__(self, branches: bool) -> None:
        self.branches = branches
        self.made: list[Stream] = []

    def recording_stream(self) -> Stream:
        self.made.append(Stream())
        return self.made[-1]


TASKS = st.lists(st.tuples(st.sampled_from("abc"), st.sets(st.integers(0, 30), max_size=3)), min_size=1, max_size=12)


@given(tasks=TASKS, branches=st.booleans())
def test_tasks_come_after_what_they_need_and_before_the_end(tasks: list[tuple[str, set[int]]], branches: bool) -> None:
    device: Any = Device(branches)
    first: Any = Stream()
    seen: dict[int, frozenset[int]] = {}

    def enqueue(at: int, stream: Any) -> None:
        assert stream.captured
        seen[at] = stream.before
        stream.before |= {at}

    wanted = [
        Task(lib, sorted({a % at for a in after}) if at else [], functools.partial(enqueue, at))
        for at, (lib, after) in enumerate(tasks)
    ]
    lanes = Lanes(device, first)
    end: Any = lanes.capture(wanted, None)
    for at, task in enumerate(wanted):
        assert set(task.after) <= seen[at], "what it needs"
        assert {earlier for earlier in range(at) if wanted[earlier].lib == task.lib} <= seen[at], "its library"
    assert end == frozenset(range(len(tasks)))
    if not branches:
        assert not device.made


def test_independent_libraries_are_concurrent() -> None:
    device: Any = Device(branches=True)
    first: Any = Stream()
    seen: list[frozenset[int]] = []

    def task(at: int, lib: str) -> Task:
        def enqueue(stream: Any) -> None:
            seen.append(stream.before)
            stream.before |= {at}

        return Task(lib, [], enqueue)

    Lanes(device, first).capture([task(0, "a"), task(1, "b"), task(2, "a")], None)
    assert seen == [frozenset(), frozenset(), frozenset({0})]
