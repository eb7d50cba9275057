"""``Frame``: the state of a run between two steps, and how it is kept."""

import itertools
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from callboard.agents.graph.checkpoints.store import Checkpoints, Saved, Write
from callboard.agents.graph.stateful.types import Interrupt, OnDevice, Send
from callboard.agents.graph.wire import encode, pack, unpack
from callboard.core.ref.handle import GpuRef

__all__ = ["Frame", "Outcome", "Task", "load_frame", "new_id", "on_host", "outcomes_of", "save_frame", "save_outcome"]

OUTCOME, RESUMED, WAITS, ERROR = 0, -1, -2, -3
"""Numbers of the writes of a task: what it returned, answers that it got, interrupts that it waits for, its error."""
_last = itertools.count()
_newest = 0


def new_id() -> str:
    """An id that is larger than all before it: of the time."""
    global _newest  # one clock for all threads of a process
    _newest = max(_newest + 1, time.time_ns())
    return f"{_newest:016x}"


@dataclass(slots=True)
class Task:
    """A node that is to run.

    Attributes:
        name: Its name.
        number: Its number among those that were sent; -1 for one that an edge has led to.
        arg: Its input, if it was sent.
    """

    name: str
    number: int = -1
    arg: Any = None

    @property
    def id(self) -> str:
        """Unique in its step."""
        return self.name if self.number < 0 else f"{self.name}#{self.number}"

    @property
    def order(self) -> tuple[bool, str, int]:
        """Updates are applied in this order: by name, then those that were sent, in their order."""
        return (False, self.name, 0) if self.number < 0 else (True, "", self.number)


@dataclass(slots=True)
class Outcome:
    """What a task has done.

    Attributes:
        writes: Keys and values of its update, in order.
        targets: Where its commands and conditions lead.
        interrupts: What it waits for; it has done nothing then.
        resumed: Answers that it has got.
        error: Its error, as a text; it runs again when the run is resumed.
    """

    writes: list[tuple[str, Any]] = field(default_factory=list)
    targets: list[str | Send] = field(default_factory=list)
    interrupts: tuple[Interrupt, ...] = ()
    resumed: list[Any] = field(default_factory=list)
    error: str | None = None


@dataclass(slots=True)
class Frame:
    """The state between two steps.

    Attributes:
        id: Of its checkpoint.
        parent: Of the checkpoint before it.
        step: Number of the step that has made it; 0 for the input of a new thread.
        source: What has made it: ``"input"``, ``"loop"``, ``"update"`` or ``"fork"``.
        values: The state.
        versions: The checkpoint that changed each key.
        tasks: The nodes that run next.
        arrived: Of each join, the nodes that have run.
        deferred: Nodes that run when nothing else is left to run.
        ran: The nodes that ran in this step.
    """

    id: str = ""
    parent: str | None = None
    step: int = -2
    source: str = "input"
    values: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    tasks: list[Task] = field(default_factory=list)
    arrived: dict[int, list[str]] = field(default_factory=dict)
    deferred: list[str] = field(default_factory=list)
    ran: list[str] = field(default_factory=list)

    def next(self, source: str, step: int) -> "Frame":
        """The frame that follows it, without tasks."""
        arrived = {n: list(names) for n, names in self.arrived.items()}
        values, versions = dict(self.values), dict(self.versions)
        return Frame(new_id(), self.id or None, step, source, values, versions, [], arrived, list(self.deferred), [])

    def changed(self, keys: Mapping[str, Any]) -> None:
        """Note that these keys have new values."""
        for key in keys:
            self.versions[key] = self.id


def save_frame(store: Checkpoints, thread: str, ns: str, frame: Frame, run_id: str | None) -> None:
    """Keep a frame whose values are on the host."""
    body = [
        frame.step,
        frame.source,
        [[task.name, task.number, None if task.number < 0 else pack(task.arg)] for task in frame.tasks],
        [[n, names] for n, names in frame.arrived.items()],
        frame.deferred,
        frame.ran,
    ]
    values = {key: pack(frame.values[key]) for key, version in frame.versions.items() if version == frame.id}
    store.put(
        thread, ns, frame.id, frame.parent, body=encode(body), versions=frame.versions, values=values, run_id=run_id
    )


def load_frame(saved: Saved, device: Any) -> tuple[Frame, float]:
    """A frame that was kept, and when."""
    step, source, tasks, arrived, deferred, ran = unpack(saved.body)
    values = {key: _live(unpack(data), device) for key, data in saved.values.items()}
    versions = {key: str(version) for key, version in saved.versions.items()}
    frame = Frame(
        saved.id,
        saved.parent,
        step,
        source,
        values,
        versions,
        [Task(name, n, None if arg is None else _live(unpack(arg), device)) for name, n, arg in tasks],
        {n: list(names) for n, names in arrived},
        deferred,
        ran,
    )
    return frame, int(saved.id, 16) / 1e9


def save_outcome(store: Checkpoints, thread: str, ns: str, frame: Frame, task: Task, outcome: Outcome) -> None:
    """Keep what a task has done."""
    rows: list[tuple[int, Any]] = []
    if outcome.resumed:
        rows.append((RESUMED, outcome.resumed))
    if outcome.error is not None:
        rows.append((ERROR, outcome.error))
    elif outcome.interrupts:
        rows.append((WAITS, [[each.value, each.id] for each in outcome.interrupts]))
    else:
        targets = [[t.node, t.arg] if isinstance(t, Send) else str(t) for t in outcome.targets]
        rows.append((OUTCOME, [[list(pair) for pair in outcome.writes], targets]))
    writes = [Write(task.id, number, "task", pack(value)) for number, value in rows]
    store.put_writes(thread, ns, frame.id, writes)


def outcomes_of(saved: Saved, device: Any) -> dict[str, Outcome]:
    """What the tasks of a frame have done, by id."""
    found: dict[str, Outcome] = {}
    done: set[str] = set()
    for write in sorted(saved.writes, key=lambda each: each.number):
        outcome = found.setdefault(write.task, Outcome())
        value = _live(unpack(write.value), device)
        match write.number:
            case -3:
                outcome.error = value
            case -2:
                outcome.interrupts = tuple(Interrupt(*each) for each in value)
            case -1:
                outcome.resumed = value
            case _:
                outcome.writes = [(key, item) for key, item in value[0]]
                outcome.targets = [Send(*t) if isinstance(t, list) else t for t in value[1]]
                done.add(write.task)
    for task in done:
        found[task].interrupts, found[task].error = (), None
    return found


async def on_host(value: Any) -> Any:
    """The value with the contents of device arrays in their place."""
    match value:
        case GpuRef():
            return OnDevice(await value.get())
        case list():
            return [await on_host(item) for item in value]
        case tuple() if type(value) is tuple:
            return tuple([await on_host(item) for item in value])
        case dict():
            return {key: await on_host(item) for key, item in value.items()}
        case Send():
            return Send(value.node, await on_host(value.arg))
    return value


def _live(value: Any, device: Any) -> Any:
    match value:
        case OnDevice():
            return value.array if device is None else device.put(value.array)
        case list():
            return [_live(item, device) for item in value]
        case tuple() if type(value) is tuple:
            return tuple(_live(item, device) for item in value)
        case dict():
            return {key: _live(item, device) for key, item in value.items()}
    return value
