"""``Replay``: the work launched by a recording's plan.

The steps are cut into parts. A part is a graph of the backend, or one step that is launched as ever, in its place: a
fill whose numbers change with every replay. Outcomes of solvers and the like are copied to the host after the part, so
two steps that leave theirs in the same memory are in different parts.

Graphs contain addresses. Graphs for several sets of buffers are kept, so that a loop over two sets of buffers finds
both. Except for the first set, buffers that appear for the first time get no graph: their steps are launched one by
one, and recorded when the same buffers appear again. The least recently used graph is then updated with the new
recording, which costs less than another graph when the two are alike.

Steps that a value on the device decides on are always in a graph, and with all others of their block in the same.
"""

import functools
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from callboard.core.backend import AccelDevice, AccelGraph, AccelStream, Readback, Replayed, Status
from callboard.core.errors import (
    AccelError,
    ContextPoisoned,
    DriverError,
    ShapeError,
    Unrecoverable,
    UnsupportedOp,
)
from callboard.core.layout import OpenLayout
from callboard.core.opinfo import read_signature
from callboard.device.host.context.admission.graphs.choices import arranged, inside, kinds
from callboard.device.host.context.admission.graphs.lanes import Lanes, Task
from callboard.device.host.context.plans.plan import Plan
from callboard.device.host.context.timelines import Timeline
from callboard.device.protocol.recording import Script, ScriptOperand, Step

__all__ = ["RecordedStep", "Replay", "StepFailed", "noted"]

KEPT = 8
"""Sets of buffers that a recording has graphs for."""
SEEN = 256
"""Sets of buffers that are noted as having been used once."""
TRIES = 3
"""Captures of a part: another thread of the process that synchronises the context breaks one off."""

Number = int | float
Addresses = tuple[int, ...]


class RecordedStep:
    """An op of a recording, with its plan."""

    __slots__ = ("after", "drawn", "numbers", "places", "plan", "where")

    def __init__(self, plan: Plan, step: Step) -> None:
        self.plan = plan
        self.where = step.where
        self.after = step.after
        self.numbers = step.numbers
        self.drawn = step.drawn
        operands = [(b.at, b.item) for b in plan.bindings]
        made = [(at, item) for at, item, _ in plan.makes]
        fits = len(step.bindings) == 2 * len(operands) and len(step.outputs) == 2 * len(made)
        self.places: list[tuple[int, int, int, int]] | None = None
        if fits:
            places = [*step.bindings, *step.outputs]
            rows = zip([*operands, *made], places[::2], places[1::2], strict=True)
            self.places = [(at, item, operand, offset) for (at, item), operand, offset in rows]

    def unfit(self, operands: Sequence[ScriptOperand]) -> AccelError | None:
        """The reason why it cannot be recorded, None if it can."""
        plan = self.plan
        if not self._fits(operands):
            return ShapeError(f"{plan.tag}: the recording does not fit the op")
        if any(binding.host for binding in plan.bindings):
            return UnsupportedOp(f"{plan.tag} cannot be recorded: it copies from or to host memory")
        if plan.launch is None or plan.open or plan.value is not None or plan.answers:
            return UnsupportedOp(f"{plan.tag} cannot be recorded: the host has to look at data before or after it")
        assert plan.library is not None
        if not self.drawn and not getattr(plan.state, "captures", True):
            return UnsupportedOp(
                f"{plan.tag} cannot be recorded: with these layouts and settings the vendor's library waits for the "
                "device or uses memory of its own"
            )
        return None

    def _fits(self, operands: Sequence[ScriptOperand]) -> bool:
        """True if operands and numbers are those of the plan, and within the checked range of a replay."""
        plan = self.plan
        numbers = sum(2 if is_complex else 1 for _, _, is_complex in plan.numbers)
        if self.places is None or len(self.numbers) != numbers or any(not 0 <= at < numbers for at in self.drawn):
            return False
        spans = [(b.low, b.high) for b in plan.bindings]
        spans += [(0, 0) if isinstance(layout, OpenLayout) else layout.span for _, _, layout in plan.makes]
        for (_, _, operand, offset), (low, high) in zip(self.places, spans, strict=True):
            if offset + low < operands[operand].low or offset + high > operands[operand].high:
                return False
        return True

    def launch(self, stream: AccelStream, addresses: Addresses, numbers: Sequence[Number]) -> Status | None:
        """Launch it on a stream."""
        plan = self.plan
        values = plan.blank.copy()
        assert self.places is not None
        for at, item, operand, offset in self.places:
            if item < 0:
                values[at] = addresses[operand] + offset
            elif item == 0:
                values[at] = [addresses[operand] + offset]
            else:
                values[at].append(addresses[operand] + offset)
        plan.fill(values, numbers)
        assert plan.launch is not None
        return plan.launch(stream, plan.state, *values)


class StepFailed(Exception):
    """A step could not be launched or recorded; its cause is passed to the step's plan.

    Attributes:
        plan: Plan of the step.
        note: Describes the step, for the error.
    """

    def __init__(self, plan: Plan, note: str) -> None:
        super().__init__(note)
        self.plan = plan
        self.note = note


class GraphPart:
    """Adjacent steps: a graph, or steps that are launched one by one.

    Attributes:
        steps: Positions of the steps.
        graph: None if they are launched one by one.
        checks: ``(position, status)`` of the steps with an outcome in device memory; the graph keeps these statuses
            alive, and with them the objects that the work needs.
    """

    __slots__ = ("checks", "graph", "held", "steps")

    def __init__(self, steps: Sequence[int], graph: AccelGraph | None, statuses: dict[int, Status]) -> None:
        self.steps = steps
        self.graph = graph
        self.held = statuses
        self.checks = [(at, status) for at, status in statuses.items() if status.nbytes]


class ReplayStatus(Status):
    """The outcomes of the steps of a launch.

    Attributes:
        outcomes: ``(replay, position, status, copy of its outcome)``, in order.
        replayed: ``(replay, part, status of the graph)``.
    """

    __slots__ = ("outcomes", "replay", "replayed", "times")

    def __init__(self, replay: "Replay", times: int) -> None:
        self.replay = replay
        self.times = times
        self.outcomes: list[tuple[int, int, Status, Readback | None]] = []
        self.replayed: list[tuple[int, GraphPart, Replayed]] = []

    @property
    def seconds(self) -> float | None:  # type: ignore[override] # computed when it is asked for
        """How long one replay took."""
        taken = [replayed.seconds for _, _, replayed in self.replayed]
        taken += [status.seconds for _, _, status, _ in self.outcomes]
        return None if None in taken else sum(each for each in taken if each is not None) / self.times

    def check(self, outcome: bytes) -> None:
        failed: list[tuple[int, int, AccelError]] = []
        for turn, part, replayed in self.replayed:
            for status, failure in replayed.failures():
                at = next((at for at, held in part.held.items() if held is status), part.steps[0])
                failed.append((turn, at, failure))
        for turn, at, status, copied in self.outcomes:
            try:
                status.check(b"" if copied is None else copied.take())
            except (ContextPoisoned, Unrecoverable):
                raise
            except AccelError as error:
                failed.append((turn, at, error))
        if failed:
            turn, at, first = min(failed, key=lambda one: one[:2])
            which = f", replay {turn + 1} of {self.times}" if self.times > 1 else ""
            raise noted(first, self.replay.named(at) + which)


class Replay:
    """The state of a recording's plan.

    Attributes:
        operands: Operands of the script.
        libs: Names of the libraries of its ops.
        steps: Ops of the script with their plans, which are pinned.
    """

    def __init__(self, device: AccelDevice, timeline: Timeline, lanes: Lanes | None, script: Script) -> None:
        self._device = device
        self._timeline = timeline
        self._lanes = lanes
        self.operands = script.operands
        self._blocks = script.blocks
        self._inside = inside(script.blocks)
        self._cuts: set[int] = set()  # steps that begin a part, because of their outcomes
        self._graphs: OrderedDict[Addresses, list[GraphPart]] = OrderedDict()
        self._seen: set[Addresses] = set()
        self._leaving: list[tuple[int, GraphPart]] = []  # with the sequence number of their last use
        self._count = {"replays": 0, "launches": 0, "recorded": 0, "updated": 0, "single": 0}
        self.libs = frozenset(_library(step.signature) for step in script.steps)
        self.steps: list[RecordedStep] = []

    @property
    def is_brief(self) -> bool:
        """True if all of its steps are, and no value decides which of them run."""
        return not self._blocks and all(step.plan.calm and step.plan.able is None for step in self.steps)

    def named(self, at: int) -> str:
        """The name of a step in errors."""
        step = self.steps[at]
        return f"step {at + 1} of {len(self.steps)} of a recording: {step.plan.tag}, made at {step.where}"

    def launch(self, stream: AccelStream, _: Any, *values: Any) -> Status | None:
        """Replay the script (:attr:`Script`) as many times as the first number; 0 records without running."""
        operands = len(self.operands)
        addresses, times = values[:operands], values[operands]
        drawn = values[operands + 1 : operands + 1 + (len(values) - operands - 1) // 2]
        further = values[operands + 1 + len(drawn) :]
        parts = self._graphs.get(addresses)
        if parts is None:
            parts = self._parts(addresses)
        else:
            self._graphs.move_to_end(addresses)
        self._count["replays"] += times
        if not times:
            for part in parts:
                if part.graph is not None:
                    part.graph.upload(stream)
            return None
        status = ReplayStatus(self, times)
        try:
            for turn in range(times):
                numbers = iter([d + turn * f for d, f in zip(drawn, further, strict=True)]) if drawn else None
                for part in parts:
                    self._run(part, stream, addresses, numbers, turn, status)
        except Exception:  # of any step: it is passed on
            stream.synchronize()  # enqueued work uses memory that the error may have released
            raise
        return status if status.outcomes or status.replayed else None

    def _run(
        self,
        part: GraphPart,
        stream: AccelStream,
        addresses: Addresses,
        drawn: Any,
        turn: int,
        status: ReplayStatus,
    ) -> None:
        if part.graph is not None:
            self._count["launches"] += 1
            replayed = part.graph.launch(stream)
            if replayed is not None:
                status.replayed.append((turn, part, replayed))
            status.outcomes += [
                (turn, at, one, self._device.read_back(stream, one.address, one.nbytes)) for at, one in part.checks
            ]
            return
        for at in part.steps:
            self._count["single"] += 1
            step = self.steps[at]
            numbers = step.numbers
            if step.drawn:
                numbers = numbers.copy()
                for position in step.drawn:
                    numbers[position] = next(drawn)
            launched = self._launched(at, stream, addresses, numbers)
            if launched is not None:
                copied = self._device.read_back(stream, launched.address, launched.nbytes) if launched.nbytes else None
                status.outcomes.append((turn, at, launched, copied))

    def refused(self, at: int) -> UnsupportedOp | None:
        """The reason why a step is invalid at its position, None if it is valid."""
        if at not in self._inside:
            return None
        tag = self.steps[at].plan.tag
        if self.steps[at].drawn:
            return UnsupportedOp(
                f"{tag} cannot be recorded where a value decides whether it runs: it takes new numbers"
            )
        if self._lanes is None or self._device.conditionals() is None:
            return UnsupportedOp(f"{tag} cannot be recorded where a value decides: this device records no conditions")
        return None

    def _launched(self, at: int, stream: AccelStream, addresses: Addresses, numbers: Sequence[Number]) -> Status | None:
        try:
            return self.steps[at].launch(stream, addresses, numbers)
        except (ContextPoisoned, Unrecoverable):
            raise
        except Exception as error:  # of a library: it is classified as that library's
            raise StepFailed(self.steps[at].plan, self.named(at)) from error

    # -- graphs --------------------------------------------------------------------------------------------------------

    def _parts(self, addresses: Addresses) -> list[GraphPart]:
        singly = [GraphPart(range(len(self.steps)), None, {})]
        if self._lanes is None:
            return singly
        if self._graphs and addresses not in self._seen and not self._blocks:
            if len(self._seen) >= SEEN:
                self._seen.clear()
            self._seen.add(addresses)
            return singly
        self._seen.discard(addresses)
        self._close_left()
        oldest = self._graphs.popitem(last=False)[1] if len(self._graphs) >= KEPT else []
        parts: list[GraphPart] = []
        try:
            parts = self._recorded(addresses, [part.graph for part in oldest if part.graph is not None])
        finally:
            taken = {id(part.graph) for part in parts}
            self._leave(part for part in oldest if id(part.graph) not in taken)
        self._graphs[addresses] = parts
        return parts

    def _recorded(self, addresses: Addresses, old: list[AccelGraph]) -> list[GraphPart]:
        """The parts for these buffers; those of the ``old`` graphs that are alike take the recording."""
        while True:
            parts: list[GraphPart] = []
            spare = iter(old)
            try:
                for steps, single in self._cut():
                    statuses: dict[int, Status] = {}
                    into = None if single else next(spare, None)
                    graph = None if single else self._captured(steps, addresses, statuses, into)
                    if graph is not None:
                        self._count["updated" if graph is into else "recorded"] += 1
                    parts.append(GraphPart(steps, graph, statuses))
            except BaseException:  # of any kind: nothing else gives them back
                self._leave(part for part in parts if part.graph not in old)
                raise
            clash = next((at for part in parts if (at := _clash(part.checks)) is not None), None)
            if clash is None:
                return parts
            self._cuts.add(clash)
            self._leave(part for part in parts if part.graph not in old)

    def _cut(self) -> Iterator[tuple[list[int], bool]]:
        """Adjacent steps, and whether they are launched one by one."""
        part: list[int] = []
        for at, step in enumerate(self.steps):
            if part and (step.drawn or at in self._cuts or self.steps[part[-1]].drawn):
                yield part, bool(self.steps[part[0]].drawn)
                part = []
            part.append(at)
        yield part, bool(self.steps[part[0]].drawn)

    def _captured(
        self, steps: Sequence[int], addresses: Addresses, statuses: dict[int, Status], into: AccelGraph | None
    ) -> AccelGraph:
        assert self._lanes is not None

        def enqueue(at: int, lane: AccelStream) -> None:
            status = self._launched(at, lane, addresses, self.steps[at].numbers)
            if status is not None:
                if status.nbytes and at in self._inside:
                    why = "its outcome is looked at after each replay"
                    tag = self.steps[at].plan.tag
                    refusal = UnsupportedOp(f"{tag} cannot be recorded where a value decides whether it runs: {why}")
                    raise noted(refusal, self.named(at))
                statuses[at] = status

        first = steps[0]

        def task(at: int) -> Task:
            step = self.steps[at]
            after = [earlier - first for earlier in step.after if earlier >= first]
            return Task(step.plan.lib, after, functools.partial(enqueue, at))

        tasks = arranged(steps, self._blocks, task, lambda operand, offset: addresses[operand] + offset)
        if self._blocks:
            self._device.conditionals().open(kinds(self._blocks))
            into = None  # a graph with conditions takes no other
        for left in reversed(range(TRIES)):
            statuses.clear()
            try:
                return self._lanes.capture(tasks, into)
            except (StepFailed, DriverError):
                if not left:
                    raise
        raise AssertionError("a capture either returns or raises")

    def _leave(self, parts: Iterable[GraphPart]) -> None:
        """These graphs are no longer launched; enqueued work may still run."""
        self._leaving += [(self._timeline.issued, part) for part in parts if part.graph is not None]

    def _close_left(self) -> None:
        done = self._timeline.completed
        for seq, part in self._leaving:
            if seq <= done and part.graph is not None:
                part.graph.close()
        self._leaving = [(seq, part) for seq, part in self._leaving if seq > done]

    def close(self) -> None:
        """Release the graphs; nothing of them runs."""
        for parts in (*self._graphs.values(), [part for _, part in self._leaving]):
            for part in parts:
                if part.graph is not None:
                    part.graph.close()
        self._graphs.clear()
        self._leaving.clear()
        for step in self.steps:
            plan = step.plan
            plan.pins -= 1
            if plan.library is not None:  # None: it was refused
                plan.used = max(plan.used, plan.timeline.issued)  # no older than ops launched by now
        self.steps = []

    def stats(self) -> dict[str, Any]:
        """Counters, and the nodes of the graphs as the device has them."""
        latest = next(reversed(self._graphs.values()), [])
        nodes = [node for part in latest if part.graph is not None for node in part.graph.describe()]
        return {**self._count, "steps": len(self.steps), "buffers": len(self._graphs), "device_nodes": nodes}


def noted(error: AccelError, note: str) -> AccelError:
    """The error, which names the failed step of a recording."""
    error.add_note(note)
    return error


def _clash(checks: Sequence[tuple[int, Status]]) -> int | None:
    """Return the first step whose outcome shares its memory with that of an earlier step."""
    taken: set[int] = set()
    for at, status in checks:
        if status.address in taken:
            return at
        taken.add(status.address)
    return None


def _library(signature: bytes) -> str:
    return read_signature(signature)[0].partition(".")[0]
