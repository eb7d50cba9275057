"""``StepPolicy``: which sequences take part in the next step. Pure: no I/O and no clock, time is an argument."""

from dataclasses import dataclass, field
from typing import Any

from callboard.patterns.batching.continuous.steps import Slot
from callboard.patterns.contract.checks import OneOf, check_whole
from callboard.patterns.requests.entries import Entry, State
from callboard.patterns.requests.errors import ItemTooLarge
from callboard.patterns.requests.waiting import QueueOptions, WaitingLine

__all__ = ["Preemption", "StepPlan", "StepPolicy", "StepSettings"]


class Preemption(OneOf):
    """The rule for preempting a running sequence, which is recomputed later. Members equal their texts."""

    NEVER = "never"
    """It runs to its end."""
    FOR_ROOM = "for_room"
    """If the sequences exceed ``max_batch_cost``, the least urgent, youngest one is preempted."""
    FOR_PRIORITY = "for_priority"
    """Then, and when a request of a higher priority waits and finds no room."""


@dataclass(frozen=True)
class StepSettings:
    """The settings of steps; checked when created.

    Attributes:
        max_batch, max_batch_cost, part_cost, max_admitted_cost, preemption, max_queue, queue: See
            :class:`ContinuousBatchingServer <callboard.ContinuousBatchingServer>`.
    """

    max_batch: int = 32
    max_batch_cost: float | None = None
    part_cost: float = 0.0
    max_admitted_cost: float | None = None
    preemption: Preemption = Preemption.FOR_ROOM
    max_queue: int = 1024
    queue: QueueOptions = field(default_factory=QueueOptions)

    def __post_init__(self) -> None:
        check_whole(1, max_batch=self.max_batch)
        for name in ("max_batch_cost", "max_admitted_cost"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ValueError(f"{name} must be positive, but is {value}")
        if not 0 <= self.part_cost < float("inf"):
            raise ValueError(f"part_cost must be a finite number of at least 0, but is {self.part_cost}")
        if self.part_cost and self.preemption is Preemption.NEVER and self.max_batch_cost is not None:
            raise ValueError(
                "sequences that grow by part_cost exceed max_batch_cost, unless some give way: for "
                'preemption="never", let cost count the whole sequence from its beginning, and part_cost be 0'
            )


@dataclass
class StepPlan:
    """The changes between two steps.

    Attributes:
        admitted: New sequences, in the order in which they join.
        preempted: Sequences that gave up their place, and wait again.
        late: Requests that were not begun by their deadlines.
        outgrown: Sequences that are beyond ``max_batch_cost`` by themselves.
    """

    admitted: list[Slot[Any, Any]] = field(default_factory=list)
    preempted: list[Slot[Any, Any]] = field(default_factory=list)
    late: list[Entry] = field(default_factory=list)
    outgrown: list[Slot[Any, Any]] = field(default_factory=list)


class StepPolicy:
    """Decides which sequences of one server run.

    Requests join in the order of their urgency, as defined by :class:`WaitingLine`; a request is never overtaken
    because a smaller one behind it would fit. A preempted sequence waits at its old place in the queue. It is admitted
    again only if a further part of every sequence also fits, so that two sequences do not preempt each other in turn.

    Attributes:
        line: Sequences that wait.
        running: Sequences that run, in the order in which they joined.
    """

    def __init__(self, settings: StepSettings) -> None:
        self.settings = settings
        self.line = WaitingLine(settings.max_queue, settings.queue)
        self.running: list[Slot[Any, Any]] = []
        self._parted: dict[int, Slot[Any, Any]] = {}  # those that wait again, with their parts

    def add(self, entry: Entry, *, may_block: bool) -> list[Entry]:
        """Queue a new entry; returns the entries that were dropped for it.

        Raises:
            QueueFull: There is no room, and the policy makes none.
            ItemTooLarge: It can never run, or does not fit into the queue.
        """
        most = self.settings.max_batch_cost
        if most is not None and entry.cost > most:
            raise ItemTooLarge(
                f"the item costs {entry.cost:g}, and max_batch_cost is {most:g}: split it, or raise max_batch_cost"
            )
        return self.line.add(entry, may_block=may_block)

    def forget(self, entry: Entry) -> None:
        """An entry has ended while it waited."""
        self.line.remove(entry)
        self._parted.pop(entry.number, None)

    def sweep(self) -> list[Slot[Any, Any]]:
        """Take out the sequences whose requests have ended; returns them."""
        gone = [slot for slot in self.running if slot.entry.state is State.ENDED]
        if gone:
            self.running = [slot for slot in self.running if slot.entry.state is not State.ENDED]
        return gone

    def interrupt(self, slots: list[Slot[Any, Any]]) -> None:
        """These sequences run no more, and wait at their old places; the next step of each computes its state again."""
        gone = {slot.number for slot in slots}
        self.running = [slot for slot in self.running if slot.number not in gone]
        for slot in slots:
            slot.fresh, slot.state = True, None
            slot.entry.cost = slot.cost
            self._parted[slot.number] = slot
        self.line.restore(slot.entry for slot in slots)

    def grown(self, slot: Slot[Any, Any], part: Any) -> None:
        """A step returned a part of a sequence."""
        slot.parts.append(part)
        slot.cost += self.settings.part_cost

    def plan(self, now: float) -> StepPlan:
        """Decide about the next step; the entries of those that join are taken out of the queue."""
        found = StepPlan()
        self._make_way(found)
        self._admit(found, now)
        return found

    @property
    def cost(self) -> float:
        """Summed cost of the running sequences."""
        return sum(slot.cost for slot in self.running)

    def _make_way(self, found: StepPlan) -> None:
        most = self.settings.max_batch_cost
        if most is None:
            return
        while self.cost > most:
            slot = max(self.running, key=self._rank)
            if len(self.running) == 1:
                self.running.remove(slot)
                found.outgrown.append(slot)
            else:
                self._preempt([slot], found)

    def _preempt(self, slots: list[Slot[Any, Any]], found: StepPlan) -> None:
        """They wait at once, so that none that is less urgent joins in their places."""
        self.interrupt(slots)
        found.preempted += slots

    def _rank(self, slot: Slot[Any, Any]) -> tuple[float, float, int]:
        return -slot.entry.priority, *self.line.rank(slot.entry)

    def _admit(self, found: StepPlan, now: float) -> None:
        line, admitted = self.line, 0.0
        while line.count:
            entry = line.peek(line.buckets()[0])
            if entry.deadline is not None and entry.deadline <= now:
                self.forget(entry)
                found.late.append(entry)
                continue
            most = self.settings.max_admitted_cost
            if found.admitted and most is not None and admitted + entry.cost > most:
                return
            if not self._fits(entry, self.running):
                victims = self._victims(entry, found)
                if not victims:
                    return
                self._preempt(victims, found)
            line.remove(entry)
            entry.state = State.RUNNING
            parted = self._parted.pop(entry.number, None)
            slot: Slot[Any, Any] = Slot(entry) if parted is None else parted
            self.running.append(slot)
            found.admitted.append(slot)
            admitted += entry.cost
            line.admit_blocked()

    def _fits(self, entry: Entry, running: list[Slot[Any, Any]]) -> bool:
        """True if it can run beside these, with room for one more part for each of them."""
        settings = self.settings
        if not running:
            return True
        if len(running) >= settings.max_batch:
            return False
        growth = settings.part_cost * (len(running) + 1)
        cost = sum(slot.cost for slot in running) + entry.cost + growth
        return settings.max_batch_cost is None or cost <= settings.max_batch_cost

    def _victims(self, entry: Entry, found: StepPlan) -> list[Slot[Any, Any]]:
        """Sequences of a lower priority that make room for this one; empty if that is not enough."""
        if self.settings.preemption is not Preemption.FOR_PRIORITY:
            return []
        left, victims = list(self.running), []
        for slot in sorted(self.running, key=self._rank, reverse=True):
            if slot.entry.priority >= entry.priority or slot in found.admitted:
                return []
            left.remove(slot)
            victims.append(slot)
            if self._fits(entry, left):
                break
        else:
            return []
        for slot in reversed(victims[:-1]):  # a small one may stay after all
            if self._fits(entry, [*left, slot]):
                left.append(slot)
                victims.remove(slot)
        return victims
