"""``JournalTests``: the contract of a journal, as tests for pytest. Derive a class from it in your test file.

::

    class TestMyJournal(JournalTests):
        @pytest.fixture
        def make(self, tmp_path):
            return lambda: MyJournal(tmp_path / "records")

``make()`` gives a new journal object over the same store each time. Set :attr:`JournalTests.durable` to False for a
store that does not outlive the object.
"""

import itertools
import threading
from collections.abc import Callable
from typing import Any, ClassVar

import pytest

import callboard as cb

__all__ = ["JournalTests"]

Make = Callable[[], Any]


class JournalTests:
    """The conformance suite of :class:`callboard.Journal`.

    Some cases are those of the recorders of the Python library eventsourcing, in our words: a conflict stores nothing
    of its group, positions have no holes, a selection begins and ends anywhere, readers beside a writer see whole
    groups.
    """

    durable: ClassVar[bool] = True
    """True if records persist for another object over the same store."""

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
