"""The deadlines of all open requests: the next deadline, and the ones that have passed."""

import heapq

from callboard.patterns.requests.entries import Entry, State

__all__ = ["Deadlines"]

FEW = 64
"""Ended entries that may stay in the heap in any case."""


class Deadlines:
    """A heap of moments at which an entry may have to end. An entry that has ended is dropped without a search."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Entry]] = []
        self._dead = 0  # records of entries that have ended: at least as many as there are in the heap

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, entry: Entry) -> None:
        """Note the entry's deadline, and the moment by which it must have been admitted."""
        for when in (entry.deadline, entry.admit_by):
            if when is not None:
                heapq.heappush(self._heap, (when, entry.number, entry))

    def ended(self, entry: Entry) -> None:
        """An entry has ended. Once most of the heap is of such entries, they are removed: amortised O(1)."""
        records = (entry.deadline is not None) + (entry.admit_by is not None)
        if not records:
            return
        self._dead += records
        if self._dead > FEW and self._dead > len(self._heap) // 2:
            self._heap = [each for each in self._heap if each[2].state is not State.ENDED]
            heapq.heapify(self._heap)
            self._dead = 0

    @property
    def next(self) -> float | None:
        """The earliest moment; None without any."""
        heap = self._heap
        while heap and heap[0][2].state is State.ENDED:
            heapq.heappop(heap)
            self._dead = max(0, self._dead - 1)
        return heap[0][0] if heap else None

    def due(self, now: float) -> list[Entry]:
        """Take the entries whose deadline has passed, and those that have found no room by when they had to."""
        found: dict[int, Entry] = {}
        while self._heap and self._heap[0][0] <= now:
            _, number, entry = heapq.heappop(self._heap)
            if entry.state is State.ENDED:
                self._dead = max(0, self._dead - 1)
            elif (entry.deadline is not None and entry.deadline <= now) or entry.state is State.BLOCKED:
                found[number] = entry
        return list(found.values())
