"""``MemoryJournal``: records in a list, lost with the process."""

from collections.abc import Sequence

from callboard.multi_device.replay.errors import JournalConflict
from callboard.multi_device.replay.journals.protocol import Recovered

__all__ = ["MemoryJournal"]


class MemoryJournal:
    """Keeps records in memory, by identity, as long as the object lives.

    Args:
        max_records: Records kept for each identity; older ones are dropped. None: any number.
    """

    def __init__(self, max_records: int | None = None) -> None:
        if max_records is not None and max_records < 1:
            raise ValueError(f"max_records is {max_records}; it is at least 1, or None")
        self._max = max_records
        self._kept: dict[str, tuple[list[bytes], int]] = {}
        self._records: list[bytes] = []
        self._identity = ""
        self._discarded = 0

    def open(self, identity: str) -> Recovered:
        if not identity:
            raise ValueError("the identity is empty; pass a text")
        if self._identity and identity != self._identity:
            raise JournalConflict(f"this journal object records {self._identity}; make another one for {identity}")
        self.close()
        self._records, self._discarded = self._kept.get(identity, ([], 0))
        self._identity = identity
        return Recovered(self.last())

    def append(self, first: int, records: Sequence[bytes]) -> None:
        if not self._identity:
            raise ValueError("the journal is not open")
        expected = self.last() + 1
        if first != expected:
            raise JournalConflict(f"record {first} does not follow record {expected - 1}", expected, first)
        self._records.extend(records)
        if self._max is not None and len(self._records) > self._max:
            self.discard(self.last() - self._max + 1)

    def read(self, first: int, count: int) -> list[tuple[int, bytes]]:
        start = max(0, first - 1 - self._discarded)
        found = self._records[start : start + count]
        return [(self._discarded + start + n, record) for n, record in enumerate(found, 1)]

    def last(self) -> int:
        return self._discarded + len(self._records)

    def discard(self, before: int) -> None:
        count = min(before - 1 - self._discarded, len(self._records))
        if count > 0:
            del self._records[:count]
            self._discarded += count

    def close(self) -> None:
        if self._identity:
            self._kept[self._identity] = self._records, self._discarded
            self._identity = ""
