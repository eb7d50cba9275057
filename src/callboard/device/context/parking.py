"""Parking: ops that cannot be launched yet, and everything that has to stay behind them.

An op is parked while its plan is being prepared, while a resident actor's turn holds one of its operands, or while
memory is being freed for it. Later ops that read what it writes or write what it touches, and later ops of its library,
park behind it; all else goes on.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import NamedTuple

from callboard.device.protocol import Plain

__all__ = ["Holds", "Parking"]


class Parked(NamedTuple):
    message: Plain
    again: Callable[[Plain], None]


class Holds:
    """Buffers that turns use, by how many: as readers, and as writers."""

    __slots__ = ("reads", "writes")

    def __init__(self) -> None:
        self.reads: Counter[int] = Counter()
        self.writes: Counter[int] = Counter()

    def add(self, reads: Iterable[int], writes: Iterable[int]) -> None:
        self.reads.update(reads)
        self.writes.update(writes)

    def remove(self, reads: Iterable[int], writes: Iterable[int]) -> None:
        for counter, buffers in ((self.reads, reads), (self.writes, writes)):
            for b in buffers:
                counter[b] -= 1
                if not counter[b]:
                    del counter[b]

    def __bool__(self) -> bool:
        return bool(self.reads or self.writes)


NOTHING = Holds()


class Parking:
    """What is parked, in program order.

    Attributes:
        held: Buffers that turns hold, from their admission to their end.
        reads, writes: Buffers that parked messages read; that they write, make or free.
        stems: Libraries (or resident actors) with parked messages.
        closed: Everything that is not a free parks (memory is being freed).
    """

    def __init__(self) -> None:
        self._entries: list[Parked] = []
        self.held = Holds()
        self.reads: set[int] = set()
        self.writes: set[int] = set()
        self.stems: set[str] = set()
        self.closed = False

    @property
    def active(self) -> bool:
        """Whether an op has to be looked at before it is launched."""
        return bool(self._entries or self.closed or self.held.reads or self.held.writes)

    def __len__(self) -> int:
        return len(self._entries)

    def blocks(self, reads: Iterable[int], writes: Iterable[int], stem: str | None, own: Holds = NOTHING) -> bool:
        """Whether a message that reads and writes these buffers must park; ``stem`` is None for a free.

        ``own`` are the holds of the same resident actor: its turns do not stand in each other's way.
        """
        if stem is not None and (self.closed or stem in self.stems):
            return True
        held = self.held
        return any(b in self.writes or held.writes[b] > own.writes[b] for b in reads) or any(
            b in self.writes or b in self.reads or held.writes[b] > own.writes[b] or held.reads[b] > own.reads[b]
            for b in writes
        )

    def park(
        self,
        message: Plain,
        again: Callable[[Plain], None],
        reads: Iterable[int],
        writes: Iterable[int],
        stem: str | None,
    ) -> None:
        """Keep a message; ``again(message)`` is called by :meth:`retry`."""
        self._entries.append(Parked(message, again))
        self.reads.update(reads)
        self.writes.update(writes)
        if stem is not None:
            self.stems.add(stem)

    def retry(self) -> None:
        """Something that was waited for is there: admit what can go on, in order; the rest parks again."""
        entries, self._entries = self._entries, []
        self.reads.clear()
        self.writes.clear()
        self.stems.clear()
        for entry in entries:
            entry.again(entry.message)
