"""Dependencies in a capture of several streams."""

import functools
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from callboard.device.host.context.admission.graphs.choices import arranged, inside, kinds
from callboard.device.host.context.admission.graphs.lanes import Choice, Lanes, Task
from callboard.device.protocol.recording import ScriptBlock
from callboard.kernel.conditional import Conditional


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


class Choosing(Device):
    """Runs every body once, as a capture does."""

    def conditionals(self) -> "Choosing":
        return self

    def record(self, stream: Any, inner: Any, what: Any, bodies: Any) -> None:
        assert stream.captured
        assert not inner.captured, "one capture of a stream at a time"
        for body in bodies:
            inner.before = stream.before
            inner.captured = True
            body(inner)
            inner.captured = False
            stream.before |= inner.before


def test_a_chain_is_captured_on_one_stream() -> None:
    """Though of several libraries."""
    device: Any = Device(branches=True)
    on: list[Any] = []
    first: Any = Stream()
    tasks = [Task("ab"[at % 2], [at - 1] if at else [], on.append) for at in range(6)]
    Lanes(device, first).capture(tasks, None)
    assert on == [first] * 6
    assert not device.made


def test_what_a_value_decides_on_comes_behind_all_before_and_before_all_behind() -> None:
    device: Any = Choosing(branches=True)
    seen: dict[int, frozenset[int]] = {}

    def task(at: int, lib: str, *after: int) -> Task:
        def enqueue(stream: Any) -> None:
            assert stream.captured
            seen[at] = stream.before
            stream.before |= {at}

        return Task(lib, after, enqueue)

    what = Conditional("if", 64, "u8")
    first: Any = Stream()
    nested = Choice(what, [[task(3, "a")], [task(4, "b")]], 2)
    items = [task(0, "a"), task(1, "b"), Choice(what, [[task(2, "a"), nested]], 3), task(5, "b", 1), task(6, "a", 2, 5)]
    end: Any = Lanes(device, first).capture(items, None)
    assert seen[1] == frozenset(), "beside each other before the choice"
    assert seen[2] == {0, 1}
    assert seen[3] >= {0, 1, 2}
    assert seen[5] == {0, 1, 2, 3, 4}
    assert seen[6] == {0, 1, 2, 3, 4, 5}
    assert end == frozenset(range(7))
    assert len(device.made) == 3, "the lane of b, and a stream for each depth of bodies"


def block(*bodies: tuple[int, int], kind: str = "switch") -> ScriptBlock:
    return ScriptBlock(kind, 0, 8, "i64", [], 0, [list(body) for body in bodies])


def test_steps_are_arranged_by_their_blocks() -> None:
    blocks = [
        block((1, 6), kind="while"),
        block((1, 1), (1, 3), (3, 4)),
        block((4, 5), kind="if"),
        block((7, 8), kind="if"),
    ]

    def shown(items: Any) -> list[Any]:
        return [
            item.lib if isinstance(item, Task) else [item.what.kind, item.tasks, *map(shown, item.bodies)]
            for item in items
        ]

    def arrange(steps: range) -> list[Any]:
        return shown(arranged(steps, blocks, lambda at: Task(str(at), [], lambda _: None), lambda _, offset: offset))

    switch = ["switch", 3, [], ["1", "2"], ["3"]]
    assert arrange(range(9)) == ["0", ["while", 5, [switch, ["if", 1, ["4"]], "5"]], "6", ["if", 1, ["7"]], "8"]
    assert arrange(range(6, 9)) == ["6", ["if", 1, ["7"]], "8"]
    assert inside(blocks) == {1, 2, 3, 4, 5, 7}
    assert kinds([*blocks, block((0, 1), (1, 2), kind="if")]) == {"while", "switch", "if", "else"}
