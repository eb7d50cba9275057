"""``Journal``: the protocol of a store of records."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from callboard.actors.errors import returned

__all__ = ["Journal", "Recovered", "checked_journal", "checked_page"]


@dataclass(frozen=True, slots=True)
class Recovered:
    """The contents of a journal when it was opened.

    Attributes:
        last: Sequence of the last record, 0 for none.
        cut: Bytes that were cut off after it: the torn tail of a write that did not end.
        reason: The reason; "" if nothing was cut.
    """

    last: int = 0
    cut: int = 0
    reason: str = ""


class Journal(Protocol):
    """Records in a sequence from 1 without holes, under an identity; one writer at a time.

    A harness calls ``open``, ``append`` and ``close`` on one thread of its own, so they may block. The other three may
    be called on any thread between ``open`` and ``close``. ``callboard.testing.journals`` has the tests that an
    implementation must pass.

    A journal gives back the bytes that it was given, or raises :class:`JournalCorrupt`: it keeps a checksum of each
    record, which covers its sequence and identity too, and knows which sequences it must have.
    """

    def open(self, identity: str) -> Recovered:
        """Acquire the sequence of this identity, created empty if there is none.

        May be called again after ``close``, or after an error.

        Raises:
            JournalConflict: Another writer has it, or this object is open for another identity.
            JournalCorrupt: It is damaged.
            Exception: It cannot be used.
        """
        ...

    def append(self, first: int, records: Sequence[bytes]) -> None:
        """Add records under the sequences ``first``, ``first + 1``, …; they are durable when this returns.

        All of them or, if this raises, a prefix. ``records`` is not empty.

        Raises:
            JournalConflict: ``first`` does not follow the last record, or another writer has taken the sequence.
            JournalCorrupt: The store is damaged.
            Exception: They cannot be written.
        """
        ...

    def read(self, first: int, count: int) -> list[tuple[int, bytes]]:
        """At most ``count`` records with their sequences, in order, from the sequence ``first`` on.

        Raises:
            JournalCorrupt: One of them has changed or is missing.
        """
        ...

    def last(self) -> int:
        """Sequence of the last record, also of one that was discarded; 0 if there never was one."""
        ...

    def discard(self, before: int) -> None:
        """Allow deletion of the records with a sequence below ``before``; deletion may be partial or late."""
        ...

    def close(self) -> None:
        """Let go of the sequence; nothing the second time."""
        ...


def checked_journal(given: Any) -> Journal:
    """``given``, if it has the methods of a journal.

    Raises:
        TypeError: It has not, or is a class.
    """
    methods = [name for name in vars(Journal) if not name.startswith("_")]
    if isinstance(given, type) or not all(callable(getattr(given, name, None)) for name in methods):
        raise TypeError(f"journal is {given!r:.200}; pass a journal: cb.FileJournal(folder), for example")
    journal: Journal = given
    return journal


def checked_page(page: Any, first: int) -> list[tuple[int, bytes]]:
    """What ``read`` of a journal returned, if it is records from the sequence ``first`` on.

    Raises:
        TypeError: It is something else, such as a sequence that was read before.
    """
    records: list[tuple[int, bytes]] = []
    if isinstance(page, list | tuple):
        for each in page:
            match each:
                case (int(sequence), bytes(record)) if sequence >= first + len(records):
                    records.append((sequence, record))
    if not isinstance(page, list | tuple) or len(records) < len(page):
        raise returned("read of the journal", page, f"(sequence, bytes) of records in order, from {first} on")
    return records
