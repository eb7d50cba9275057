"""From one frame to the next: updates applied, edges and joins followed."""

from collections.abc import Iterable, Sequence
from typing import Any

from callboard.actors.loops.end import END
from callboard.agents.graph.stateful.frames import Frame, Outcome, Task
from callboard.agents.graph.stateful.schema import apply_writes
from callboard.agents.graph.stateful.spec import Spec
from callboard.agents.graph.stateful.types import START, Send

__all__ = ["advance", "enter", "with_finished"]


def enter(spec: Spec, before: Frame, writes: Sequence[tuple[str, Any]], targets: Iterable[str | Send]) -> Frame:
    """The frame of a run's input: what was to run before is dropped."""
    frame = before.next("input", before.step + 2)
    frame.tasks, frame.arrived, frame.deferred = [], {}, []
    if not before.id:
        frame.values = {name: channel.start() for name, channel in spec.channels.items() if channel.start}
        frame.changed(frame.values)
    frame.changed(apply_writes(spec.channels, frame.values, [(START, key, value) for key, value in writes]))
    _lead(spec, frame, [(START, targets)])
    frame.ran = [START]
    return frame


def advance(spec: Spec, before: Frame, done: Iterable[tuple[Task, Outcome]], source: str = "loop") -> Frame:
    """The frame after a step, of what its tasks have done."""
    given = list(done)
    ordered = given if len(given) == 1 else sorted(given, key=lambda pair: pair[0].order)
    frame = before.next(source, before.step + 1)
    writes = [(task.name, key, value) for task, outcome in ordered for key, value in outcome.writes]
    frame.changed(apply_writes(spec.channels, frame.values, writes))
    _lead(spec, frame, [(task.name, outcome.targets) for task, outcome in ordered])
    frame.ran = [task.name for task, _ in ordered]
    return frame


def with_finished(spec: Spec, frame: Frame, done: Iterable[tuple[Task, Outcome]]) -> dict[str, Any]:
    """The state with the updates of those tasks of an interrupted step that have finished; they are kept aside."""
    values = dict(frame.values)
    ordered = sorted(done, key=lambda pair: pair[0].order)
    apply_writes(spec.channels, values, [(t.name, key, value) for t, each in ordered for key, value in each.writes])
    return values


def _lead(spec: Spec, frame: Frame, done: Sequence[tuple[str, Iterable[str | Send]]]) -> None:
    names: dict[str, None] = {}
    sends: list[Send] = []
    for name, targets in done:
        for target in (*targets, *spec.edges.get(name, ())):
            if isinstance(target, Send):
                sends.append(target)
            elif target != END:
                names[target] = None
        for n in spec.joins_of.get(name, ()):
            starts, end = spec.joins[n]
            arrived = frame.arrived.setdefault(n, [])
            if name not in arrived:
                arrived.append(name)
            if len(arrived) == len(set(starts)):
                del frame.arrived[n]
                if end != END:
                    names[end] = None
    frame.tasks = [Task(send.node, n, send.arg) for n, send in enumerate(sends)]
    _add(spec, frame, names)
    if not frame.tasks and frame.arrived and spec.join_rule == "all_scheduled":
        waiting, frame.arrived = frame.arrived, {}
        _add(spec, frame, dict.fromkeys(spec.joins[n][1] for n in waiting if spec.joins[n][1] != END))
    if not frame.tasks and frame.deferred:
        frame.tasks, frame.deferred = [Task(name) for name in sorted(frame.deferred)], []


def _add(spec: Spec, frame: Frame, names: Iterable[str]) -> None:
    for name in sorted(names):
        if not spec.nodes[name].defer:
            frame.tasks.append(Task(name))
        elif name not in frame.deferred:
            frame.deferred.append(name)
