"""``JournalTests``: the contract of a journal, as tests for pytest. Derive a class from it in your test file.

::

    class TestMyJournal(JournalTests):
        @pytest.fixture
        def make(self, tmp_path):
            return lambda: MyJournal(tmp_path / "records")

        @pytest.fixture
        def store(self, tmp_path):
            return FolderStore(tmp_path / "records")

``make()`` gives a new journal object over the same store each time. ``store`` gives access to the stored bytes, for the
tests that damage them; without it, they are left out. Set :attr:`JournalTests.durable` to False for a store that does
not outlive the object.
"""

import itertools
import random
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, Protocol

import pytest

import callboard as cb

__all__ = ["FolderStore", "JournalTests", "Store"]

Make = Callable[[], Any]


class Store(Protocol):
    """The bytes of a journal that is closed: of its files, or of its rows, with the numbers in them."""

    def load(self) -> dict[str, bytes]:
        """All of them, by a name for each file or row."""
        ...

    def save(self, contents: Mapping[str, bytes]) -> None:
        """Replace them."""
        ...


class FolderStore:
    """The files of a folder, as :class:`Store`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def load(self) -> dict[str, bytes]:
        """All files except those of locks."""
        return {path.name: path.read_bytes() for path in sorted(self._folder.iterdir()) if path.suffix != ".lock"}

    def save(self, contents: Mapping[str, bytes]) -> None:
        """Write these, and remove all others."""
        for path in self._folder.iterdir():
            path.unlink()
        for name, content in contents.items():
            (self._folder / name).write_bytes(content)


class JournalTests:
    """The conformance suite of :class:`callboard.Journal`.

    Some cases are those of the recorders of the Python library eventsourcing, in our words: a conflict stores nothing
    of its group, positions have no holes, a selection begins and ends anywhere, readers beside a writer see whole
    groups.
    """

    durable: ClassVar[bool] = True
    """True if records persist for another object over the same store."""
    flips: ClassVar[int] = 200
    """Number of damaged stores that are read."""

    @pytest.fixture
    def store(self) -> Store | None:
        """The stored bytes; None leaves out the tests that damage them."""
        return None

    @staticmethod
    def opened(make: Make, identity: str = "one") -> Any:
        """A journal, open."""
        journal = make()
        journal.open(identity)
        return journal

    def test_a_new_journal_is_empty(self, make: Make) -> None:
        journal = make()
        found = journal.open("one")
        assert (found.last, found.cut, found.reason) == (0, 0, "")
        assert (journal.last(), journal.read(1, 10)) == (0, [])
        journal.close()

    def test_records_come_back_as_they_were(self, make: Make) -> None:
        journal = self.opened(make)
        records = [b"", b"\x00", bytes(range(256)), b"x" * 100_000]
        journal.append(1, records[:1])
        journal.append(2, records[1:])
        assert journal.read(1, 100) == list(enumerate(records, 1))
        assert journal.last() == 4
        journal.close()

    def test_reading_begins_and_ends_anywhere(self, make: Make) -> None:
        journal = self.opened(make)
        records = [b"%d" % n for n in range(1, 41)]
        for first in range(1, 41, 8):
            journal.append(first, records[first - 1 : first + 7])
        for first, count in itertools.product((1, 2, 8, 9, 40, 41, 1000), (1, 7, 8, 100)):
            wanted = list(enumerate(records, 1))[first - 1 : first - 1 + count]
            assert journal.read(first, count) == wanted, (first, count)
        journal.close()

    @pytest.mark.parametrize("first", [0, 1, 2, 4, 100])
    def test_records_that_do_not_follow_are_refused(self, make: Make, first: int) -> None:
        journal = self.opened(make)
        journal.append(1, [b"a", b"b"])
        with pytest.raises(cb.JournalConflict) as caught:
            journal.append(first, [b"c", b"d"])
        assert (caught.value.expected, caught.value.got) == (3, first)
        assert journal.last() == 2
        journal.append(3, [b"c"])
        assert journal.read(1, 10) == [(1, b"a"), (2, b"b"), (3, b"c")]
        journal.close()

    def test_identities_do_not_mix(self, make: Make) -> None:
        journal = self.opened(make, "one")
        journal.append(1, [b"one"])
        journal.close()
        assert journal.open("one-2").last == 0
        journal.append(1, [b"two", b"three"])
        journal.close()
        assert journal.open("one").last == 1
        assert journal.read(1, 10) == [(1, b"one")]
        journal.close()

    def test_it_goes_on_where_it_was_closed(self, make: Make) -> None:
        journal = self.opened(make)
        journal.append(1, [b"a", b"b"])
        journal.close()
        journal.close()
        assert journal.open("one").last == 2
        journal.append(3, [b"c"])
        assert journal.read(2, 10) == [(2, b"b"), (3, b"c")]
        journal.close()

    def test_another_object_finds_the_records(self, make: Make) -> None:
        if not self.durable:
            return
        journal = self.opened(make)
        journal.append(1, [b"a"])
        journal.close()
        other = make()
        assert other.open("one").last == 1
        assert other.read(1, 10) == [(1, b"a")]
        other.close()

    def test_a_second_writer_is_refused(self, make: Make) -> None:
        """The error comes from ``open`` or, at the latest, from an append after the first writer's."""
        if not self.durable:
            return
        journal, other = self.opened(make), make()

        def write_beside() -> None:
            other.open("one")
            journal.append(1, [b"a"])
            other.append(1, [b"b"])

        with pytest.raises(cb.JournalConflict):
            write_beside()
        other.close()
        journal.append(journal.last() + 1, [b"c"])
        assert journal.read(journal.last(), 10) == [(journal.last(), b"c")]
        assert b"b" not in [record for _, record in journal.read(1, 10)]
        journal.close()

    def test_what_is_discarded_keeps_its_sequences(self, make: Make) -> None:
        journal = self.opened(make)
        journal.append(1, [b"a", b"b", b"c", b"d"])
        journal.discard(3)
        left = journal.read(1, 10)
        assert left[-2:] == [(3, b"c"), (4, b"d")]
        assert journal.last() == 4
        journal.discard(100)
        journal.append(5, [b"e"])
        journal.close()
        assert journal.open("one").last == 5
        assert journal.read(5, 10) == [(5, b"e")]
        journal.close()

    def test_a_closed_journal_takes_nothing(self, make: Make) -> None:
        journal = self.opened(make)
        journal.append(1, [b"a"])
        journal.close()
        with pytest.raises(Exception):  # noqa: B017, PT011 - of any class: it is the store's
            journal.append(2, [b"b"])
        assert journal.open("one").last == 1
        journal.close()

    def test_a_reader_beside_the_writer_sees_a_prefix(self, make: Make) -> None:
        journal = self.opened(make)
        ended = threading.Event()
        wrong: list[Any] = []

        def read() -> None:
            while not ended.is_set():
                found = journal.read(1, 1000)
                if found != [(n, b"%d" % n) for n in range(1, len(found) + 1)]:
                    wrong.append(found)

        reader = threading.Thread(target=read)
        reader.start()
        try:
            for first in range(1, 200, 5):
                journal.append(first, [b"%d" % n for n in range(first, first + 5)])
        finally:
            ended.set()
            reader.join()
        assert not wrong
        assert len(journal.read(1, 1000)) == 200
        journal.close()

    def test_a_thousand_records_in_one_group(self, make: Make) -> None:
        journal = self.opened(make)
        records = [b"%06d" % n * 20 for n in range(9000)]
        journal.append(1, records)
        assert [record for _, record in journal.read(1, 10_000)] == records
        journal.close()

    def test_an_open_journal_is_not_opened_for_another_identity(self, make: Make) -> None:
        """Records of the first writer would otherwise be appended to those of the second."""
        journal = self.opened(make, "one")
        journal.append(1, [b"a"])
        with pytest.raises(cb.JournalConflict):
            journal.open("two")
        journal.append(2, [b"b"])
        journal.close()
        assert journal.open("two").last == 0
        journal.close()

    # -- damage --------------------------------------------------------------------------------------------------------

    @staticmethod
    def written(make: Make) -> list[tuple[int, bytes]]:
        """Write some records, of two identities, and return those of the first."""
        for identity in ("one", "two"):
            journal = make()
            journal.open(identity)
            for first in range(1, 13, 3):
                journal.append(first, [bytes([first, n]) * (7 * n) for n in range(3)])
            journal.discard(3)
            journal.close()
        journal = make()
        journal.open("one")
        records = list(journal.read(1, 100))
        journal.close()
        assert records[-1] == (12, bytes([10, 2]) * 14)
        return records

    @staticmethod
    def found(make: Make) -> list[tuple[int, bytes]] | None:
        """All records of the first identity; None if the journal refuses them."""
        journal = make()
        try:
            last = journal.open("one").last
            records = list(journal.read(1, 100))
            assert last == journal.last() == (records[-1][0] if records else last)
            return records
        except cb.JournalCorrupt:
            return None
        finally:
            journal.close()

    def test_a_changed_bit_is_noticed(self, make: Make, store: Store | None) -> None:
        if store is None:
            return
        records, contents = self.written(make), store.load()
        noticed = 0
        for changed in _damaged(contents, self.flips):
            store.save(changed)
            found = self.found(make)
            noticed += found is None
            assert found in (records, None), {name for name in contents if contents[name] != changed[name]}
        assert noticed, "no change was noticed: the store does not return what the journal reads"
        store.save(contents)
        assert self.found(make) == records

    def test_parts_that_are_exchanged_are_noticed(self, make: Make, store: Store | None) -> None:
        """Two rows or files have each other's contents, or the same."""
        if store is None:
            return
        records, contents = self.written(make), store.load()
        for one, other in itertools.pairwise(contents):
            for left, right in ((contents[other], contents[one]), (contents[one], contents[one])):
                store.save({**contents, one: left, other: right})
                assert self.found(make) in (records, None), (one, other)
        store.save(contents)
        assert self.found(make) == records

    def test_parts_that_are_missing_are_noticed(self, make: Make, store: Store | None) -> None:
        """A row or file is gone; only the end of a journal may be missing, as a crash leaves it."""
        if store is None:
            return
        records, contents = self.written(make), store.load()
        for gone in contents:
            store.save({name: content for name, content in contents.items() if name != gone})
            found = self.found(make)
            assert found is None or found == records[: len(found)], gone


def _damaged(contents: Mapping[str, bytes], number: int) -> Iterator[dict[str, bytes]]:
    """Contents with one changed bit, evenly spread over all bits, and with two and three, anywhere."""
    places = [(name, at) for name, content in contents.items() for at in range(8 * len(content))]
    rng = random.Random(number)
    one = number // 2
    for n in range(number):
        chosen = [places[n * len(places) // one]] if n < one else rng.sample(places, rng.choice((2, 3)))
        changed = {name: bytearray(content) for name, content in contents.items()}
        for name, at in chosen:
            changed[name][at >> 3] ^= 1 << (at & 7)
        yield {name: bytes(content) for name, content in changed.items()}
