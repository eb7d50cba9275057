"""``Lanes``: the streams on which a recording is captured, one for each library of its ops.

Ops of one library follow each other, as they do when they are called, because they share a workspace. Ops of different
libraries wait for each other only if one needs data that the other reads or writes, and are concurrent in the graph
otherwise. If each op needs the one before, a single stream is used.

A :class:`Choice` (tasks that depend on a value on the device) is ordered after all tasks before it and before all tasks
after it. The tasks of its bodies run one after another: a stream that has been part of a capture cannot be part of
another one before the first has ended.
"""

import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple

from callboard.core.backend import AccelDevice, AccelEvent, AccelGraph, AccelStream
from callboard.kernel.conditional import Conditional

__all__ = ["Choice", "Lanes", "Task"]


class Task(NamedTuple):
    """A unit of captured work.

    Attributes:
        lib: Name of its library.
        after: Positions of the earlier tasks that must precede it.
        enqueue: Enqueues it on a stream.
    """

    lib: str
    after: Sequence[int]
    enqueue: Callable[[AccelStream], None]


class Choice(NamedTuple):
    """Tasks that run depending on a value on the device.

    Attributes:
        what: The condition.
        bodies: The tasks of each body.
        tasks: Number of tasks in all bodies.
    """

    what: Conditional
    bodies: "Sequence[Sequence[Task | Choice]]"
    tasks: int


class Lanes:
    """Captures tasks.

    Args:
        device: Device that captures; its graphs may have branches.
        first: Stream on which the capture begins and ends.
    """

    def __init__(self, device: AccelDevice, first: AccelStream) -> None:
        self._device = device
        self._first = first
        self._lanes: dict[str, AccelStream] = {}
        self._inner: list[AccelStream] = []  # of bodies, by how deep they are

    def capture(self, items: Sequence[Task | Choice], into: AccelGraph | None) -> AccelGraph:
        """Record the tasks, whose order is a right one. Arguments, result and errors as :meth:`AccelStream.capture`."""
        return self._first.capture(functools.partial(self._all, items), into)

    def _all(self, items: Sequence[Task | Choice]) -> None:
        run: list[Task] = []
        begun = at = 0  # positions of the first task of the current sequence and of the next task
        for item in items:
            if isinstance(item, Task):
                run.append(item)
                at += 1
                continue
            self._adjacent(run, begun)
            self._chosen(item, self._first, 0)
            at += item.tasks
            run, begun = [], at
        self._adjacent(run, begun)

    def _adjacent(self, run: Sequence[Task], begun: int) -> None:
        tasks = [task._replace(after=[at - begun for at in task.after if at >= begun]) for task in run]
        chain = all(at - 1 in task.after for at, task in enumerate(tasks) if at)  # nothing could be concurrent
        single = chain or not self._device.branches or len({task.lib for task in tasks}) <= 1
        (self._in_a_row if single else self._branched)(tasks)

    def _in_a_row(self, tasks: Sequence[Task]) -> None:
        for task in tasks:
            task.enqueue(self._first)

    def _chosen(self, choice: Choice, stream: AccelStream, depth: int) -> None:
        if depth == len(self._inner):
            made = self._device.recording_stream()
            assert made is not None
            self._inner.append(made)
        bodies = [functools.partial(self._body, items, depth) for items in choice.bodies]
        self._device.conditionals().record(stream, self._inner[depth], choice.what, bodies)

    def _body(self, items: Sequence[Task | Choice], depth: int, stream: AccelStream) -> None:
        for item in items:
            if isinstance(item, Task):
                item.enqueue(stream)
            else:
                self._chosen(item, stream, depth + 1)

    def _branched(self, tasks: Sequence[Task]) -> None:
        first = self._first
        lanes = [self._lane(task.lib, tasks[0].lib) for task in tasks]
        awaited = {at for task, lane in zip(tasks, lanes, strict=True) for at in task.after if lanes[at] is not lane}
        begun = {first}
        events: dict[int, AccelEvent] = {-1: first.record()}
        for at, (task, lane) in enumerate(zip(tasks, lanes, strict=True)):
            before = [earlier for earlier in task.after if lanes[earlier] is not lane]
            if lane not in begun and not before:
                before = [-1]
            begun.add(lane)
            for earlier in before:
                lane.wait(events[earlier])
            task.enqueue(lane)
            if at in awaited:
                events[at] = lane.record()
        ends = [(lane, lane.record()) for lane in begun if lane is not first]
        for _, end in ends:
            first.wait(end)
        for lane, event in [(first, events.pop(-1)), *((lanes[at], event) for at, event in events.items()), *ends]:
            lane.recycle(event)

    def _lane(self, lib: str, of_first: str) -> AccelStream:
        if lib == of_first:
            return self._first
        lane = self._lanes.get(lib)
        if lane is None:
            made = self._device.recording_stream()
            assert made is not None
            lane = self._lanes[lib] = made
        return lane
