"""``SequencePolicy``: assignment of sequences to workers, and the next work of each. Pure: time is an argument."""

import heapq
from collections import OrderedDict
from collections.abc import Hashable, Iterator
from dataclasses import dataclass

from callboard.patterns.batching.sequences.slots import SequenceLost, SequenceSlot, WhyLost
from callboard.patterns.contract.checks import check_whole
from callboard.patterns.requests.entries import Entry, State
from callboard.patterns.requests.errors import QueueFull

__all__ = ["OpenSequence", "SequencePolicy", "SequenceSettings"]

FORGOTTEN = 4096
"""Sequences whose end is recorded, so that a late request fails with the reason."""

TEXTS: dict[WhyLost, str] = {
    "unknown": "was not started, or is long gone",
    "ended": "has ended",
    "idle": "had no request for too long",
    "failed": "lost its state when a batch failed",
    "restarted": "was started anew",
}


@dataclass(frozen=True)
class SequenceSettings:
    """Bounds; checked when it is made.

    Attributes:
        workers: The number of workers.
        max_batch, max_sequences, idle_timeout, max_queue: See
            :class:`SequenceBatchingServer <callboard.SequenceBatchingServer>`.
    """

    workers: int = 1
    max_batch: int = 32
    max_sequences: int = 64
    idle_timeout: float = 60.0
    max_queue: int = 1024

    def __post_init__(self) -> None:
        check_whole(1, **{name: getattr(self, name) for name in ("workers", "max_batch", "max_sequences", "max_queue")})
        if not 0 < self.idle_timeout < float("inf"):
            raise ValueError(f"idle_timeout must be positive seconds, but is {self.idle_timeout}")


class OpenSequence:
    """A sequence that has not ended.

    Attributes:
        name: Name of the sequence in its requests.
        worker: Worker that has it; None while it waits for a place.
        slot: Slot of the sequence on that worker.
        waiting: Requests of the sequence that have not run, in order.
        running: The one that runs.
        last: The request that ends it has come.
        used: When its last request ended, or came.
        lost: The reason why it is lost while a request of it still runs; None: it is not.
    """

    __slots__ = ("last", "lost", "name", "running", "slot", "used", "waiting", "worker")

    def __init__(self, name: Hashable, now: float) -> None:
        self.name = name
        self.worker: int | None = None
        self.slot: SequenceSlot | None = None
        self.waiting: OrderedDict[int, Entry] = OrderedDict()
        self.running: Entry | None = None
        self.last = False
        self.used = now
        self.lost: WhyLost | None = None


class SequencePolicy:
    """Keeps each sequence on one worker, and its requests in order.

    A new sequence goes to the worker with the fewest. A batch contains at most one request of a sequence, the oldest
    first. Requests that are cancelled, or expire, before they run are left out of their sequence.

    Attributes:
        queued: Requests that wait.
        ended: Slots of sequences that have ended; for the server, which empties it.
    """

    def __init__(self, settings: SequenceSettings) -> None:
        self.settings = settings
        self.queued = 0
        self.ended: list[SequenceSlot] = []
        self._sequences: dict[Hashable, OpenSequence] = {}
        self._placed: list[dict[int, OpenSequence]] = [{} for _ in range(settings.workers)]
        self._free = [list(range(settings.max_sequences)) for _ in range(settings.workers)]
        self._backlog: OrderedDict[int, OpenSequence] = OrderedDict()
        self._of: dict[int, OpenSequence] = {}  # by the number of a request
        self._gone: OrderedDict[Hashable, WhyLost] = OrderedDict()

    @property
    def count(self) -> int:
        """Sequences that have a place."""
        return sum(map(len, self._placed))

    @property
    def backlog(self) -> int:
        """Sequences that wait for a place."""
        return len(self._backlog)

    # -- requests ------------------------------------------------------------------------------------------------------

    def add(self, entry: Entry, now: float, *, start: bool, end: bool) -> list[Entry]:
        """Queue a new entry of the sequence ``entry.key``; returns those of a former one that it replaces.

        Raises:
            SequenceLost: The sequence is not there, and this does not start it.
            QueueFull: There is no room.
        """
        sequence = self._sequences.get(entry.key)
        if not start and (sequence is None or sequence.last):
            why: WhyLost = "ended" if sequence is not None else self._gone.get(entry.key, "unknown")
            raise self.lost(entry.key, why)
        if self.queued >= self.settings.max_queue:
            limit = self.settings.max_queue
            raise QueueFull(f"the queue is full: {limit} of {limit} requests", limit=limit, depth=limit)
        dropped: list[Entry] = []
        if start or sequence is None:
            if sequence is not None and not sequence.last:
                dropped = self.lose(sequence, "restarted")
            sequence = self._sequences[entry.key] = OpenSequence(entry.key, now)
            self._backlog[id(sequence)] = sequence
            self._place()
        sequence.waiting[entry.number] = entry
        sequence.used = now
        sequence.last = end
        self._of[entry.number] = sequence
        self.queued += 1
        entry.state = State.QUEUED
        return dropped

    def lost(self, name: Hashable, why: WhyLost) -> SequenceLost:
        """The error of a request of a sequence that is not there."""
        return SequenceLost(f"sequence {name!r} {TEXTS[why]}; start it again with start=True", name, why)

    def remove(self, entry: Entry, now: float) -> None:
        """Take an entry out that waits: O(1)."""
        sequence = self._of.pop(entry.number, None)
        if sequence is None or entry.number not in sequence.waiting:
            return
        del sequence.waiting[entry.number]
        self.queued -= 1
        entry.state = State.NEW
        if not sequence.waiting and sequence.running is None and (sequence.last or sequence.slot is None):
            self._close(sequence, "ended")  # the request that would have ended it, or begun it, was cancelled

    # -- batches -------------------------------------------------------------------------------------------------------

    def ready(self, worker: int) -> bool:
        """True if there is anything to run on this worker."""
        return any(self._can_run(worker))

    def take(self, worker: int, now: float) -> list[tuple[Entry, SequenceSlot]]:
        """The next batch of a worker that is free; empty without any."""
        able = self._can_run(worker)
        chosen = heapq.nsmallest(self.settings.max_batch, able, key=lambda each: next(iter(each.waiting)))
        found: list[tuple[Entry, SequenceSlot]] = []
        for sequence in chosen:
            _, entry = sequence.waiting.popitem(last=False)
            self.queued -= 1
            entry.state = State.RUNNING
            entry.started = now
            sequence.running = entry
            assert sequence.slot is not None
            sequence.slot.end = sequence.last and not sequence.waiting
            found.append((entry, sequence.slot))
        return found

    def _can_run(self, worker: int) -> Iterator[OpenSequence]:
        return (each for each in self._placed[worker].values() if each.waiting and each.running is None)

    def finished(self, entry: Entry, now: float) -> None:
        """A request has run, whatever became of it; its sequence may end with it."""
        sequence = self._of.pop(entry.number)
        sequence.running = None
        sequence.used = now
        assert sequence.slot is not None
        sequence.slot.start = False
        if sequence.lost is not None or (sequence.last and not sequence.waiting):
            self._close(sequence, sequence.lost or "ended")

    # -- ends ----------------------------------------------------------------------------------------------------------

    def lose(self, sequence: OpenSequence, why: WhyLost) -> list[Entry]:
        """Mark a sequence as lost; returns its waiting requests. Its slot is free once none of its requests runs."""
        waiting = list(sequence.waiting.values())
        for entry in waiting:
            del self._of[entry.number]
            entry.state = State.NEW
        self.queued -= len(waiting)
        sequence.waiting.clear()
        sequence.lost = why
        if sequence.running is None:
            self._close(sequence, why)
        elif self._sequences.get(sequence.name) is sequence:
            del self._sequences[sequence.name]
            self._remember(sequence.name, why)
        return waiting

    def sequence_of(self, entry: Entry) -> OpenSequence:
        """The sequence of a request that waits or runs."""
        return self._of[entry.number]

    def on(self, worker: int) -> list[OpenSequence]:
        """All sequences of a worker."""
        return list(self._placed[worker].values())

    def idle(self, now: float) -> int:
        """End the sequences that have been idle for too long; returns how many."""
        over = [each for each in self._at_rest() if each.used + self.settings.idle_timeout <= now]
        for each in over:
            self._close(each, "idle")
        return len(over)

    @property
    def next_idle(self) -> float | None:
        """The time at which the next sequence will have been idle for too long; None without an idle one."""
        used = min((each.used for each in self._at_rest()), default=None)
        return None if used is None else used + self.settings.idle_timeout

    def _at_rest(self) -> Iterator[OpenSequence]:
        return (
            each for placed in self._placed for each in placed.values() if not each.waiting and each.running is None
        )

    def _close(self, sequence: OpenSequence, why: WhyLost) -> None:
        slot = sequence.slot
        if self._sequences.get(sequence.name) is sequence:
            del self._sequences[sequence.name]
            self._remember(sequence.name, why)
        self._backlog.pop(id(sequence), None)
        if slot is not None and sequence.worker is not None:
            del self._placed[sequence.worker][slot.number]
            heapq.heappush(self._free[sequence.worker], slot.number)
            self.ended.append(slot)
            self._place()

    def _remember(self, name: Hashable, why: WhyLost) -> None:
        self._gone.pop(name, None)
        self._gone[name] = why
        if len(self._gone) > FORGOTTEN:
            self._gone.popitem(last=False)

    def _place(self) -> None:
        """Give sequences that wait for one a place, oldest first."""
        while self._backlog:
            worker = min(range(self.settings.workers), key=lambda each: len(self._placed[each]))
            if not self._free[worker]:
                return
            _, sequence = self._backlog.popitem(last=False)
            number = heapq.heappop(self._free[worker])
            sequence.worker, sequence.slot = worker, SequenceSlot(sequence.name, number)
            self._placed[worker][number] = sequence
