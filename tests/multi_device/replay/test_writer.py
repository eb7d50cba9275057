"""Group commit, and journal failures."""

import asyncio
import logging
import threading
from collections.abc import Sequence
from typing import Any

import pytest

import callboard as cb
from callboard.multi_device.replay import writer as writing
from callboard.multi_device.replay.entries import Gap, decode
from callboard.multi_device.replay.writer import JournalWriter

LIMIT = 30.0


class Flaky(cb.MemoryJournal):
    """One that fails while it is told to, and waits while it is told to.

    Attributes:
        groups: Sizes of the writes.
    """

    def __init__(self) -> None:
        super().__init__()
        self.error: Exception | None = None
        self.partly = 0
        self.groups: list[int] = []
        self.free = threading.Event()
        self.free.set()
        self.writing = threading.Event()

    def append(self, first: int, records: Sequence[bytes]) -> None:
        self.writing.set()
        assert self.free.wait(LIMIT)
        if self.error is not None:
            if self.partly:
                super().append(first, records[: self.partly])
            raise self.error
        super().append(first, records)
        self.groups.append(len(records))


def started(journal: Any, **options: Any) -> JournalWriter:
    writer = JournalWriter(journal, "one", **{"linger": 0.0, "retry": 0.005, **options})
    writer.start()
    return writer


def test_what_gathers_while_a_group_is_written_is_the_next_group() -> None:
    journal = Flaky()
    writer = started(journal)
    journal.free.clear()
    writer.put(b"0")
    assert journal.writing.wait(LIMIT)
    for n in range(1, 100):
        writer.put(b"%d" % n)
    journal.free.set()
    writer.flush()
    assert [record for _, record in journal.read(1, 1000)] == [b"%d" % n for n in range(100)]
    assert journal.groups[0] == 1
    assert len(journal.groups) == 2
    stats = writer.stats
    assert (stats.recorded, stats.pending, stats.lost, stats.groups, stats.failure) == (100, 0, 0, 2, "")
    writer.close()


def test_all_threads_keep_their_own_order() -> None:
    journal = Flaky()
    writer = started(journal)

    def write(name: int) -> None:
        for n in range(500):
            writer.put(b"%d %d" % (name, n))

    threads = [threading.Thread(target=write, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    writer.close()
    journal.open("one")
    found = [tuple(map(int, record.split())) for _, record in journal.read(1, 10_000)]
    assert len(found) == 2000
    for name in range(4):
        assert [n for who, n in found if who == name] == list(range(500))


def test_fail_refuses_from_the_failure_on() -> None:
    journal, told = Flaky(), []
    writer = started(journal, told=told.append)
    writer.put(b"a")
    writer.flush()
    journal.error = OSError("no space left")
    writer.put(b"b")
    with pytest.raises(cb.JournalFailed, match="the journal one failed: OSError: no space left") as caught:
        writer.flush()
    assert isinstance(caught.value.__cause__, OSError)
    journal.error = None
    with pytest.raises(cb.JournalFailed):
        writer.put(b"c")
    assert (writer.stats.recorded, writer.stats.lost) == (1, 1)
    with pytest.raises(cb.JournalFailed):
        writer.close()
    assert [type(each) for each in told] == [cb.JournalFailed]  # by the writer's thread, which has ended


def test_what_is_lost_is_counted_behind_the_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    failures: list[Any] = []
    settle = JournalWriter._settle

    def noting(self: JournalWriter, recorded: int, lost: int) -> None:
        failures.append(self.failure)
        settle(self, recorded, lost)

    monkeypatch.setattr(JournalWriter, "_settle", noting)
    journal = Flaky()
    writer = started(journal)
    journal.error = OSError("no space left")
    writer.put(b"a")
    with pytest.raises(cb.JournalFailed):  # also for a flush that ends between the two
        writer.flush()
    assert [type(each) for each in failures] == [cb.JournalFailed]
    with pytest.raises(cb.JournalFailed):
        writer.close()


def test_degrade_counts_says_and_goes_on_with_a_gap(caplog: pytest.LogCaptureFixture) -> None:
    journal, told, again = Flaky(), [], threading.Event()

    def tell(failure: cb.JournalFailed | None) -> None:
        told.append(failure)
        if failure is None:
            again.set()

    writer = started(journal, on_failure="degrade", told=tell)
    writer.put(b"a")
    writer.flush()
    journal.error, journal.partly = OSError("no space left"), 1
    journal.free.clear()
    for n in range(3):
        writer.put(b"%d" % n)
    journal.free.set()
    writer.flush()
    assert writer.stats.failure
    writer.put(b"lost")
    before = writer.stats.lost
    journal.error = None
    assert again.wait(LIMIT)
    writer.put(b"z")
    writer.flush()
    records = [record for _, record in journal.read(1, 100)]
    assert (records[0], records[-1]) == (b"a", b"z")
    gap = decode(records[-2])
    assert isinstance(gap, Gap)
    assert gap.lost == before == writer.stats.lost >= 3
    assert "no space left" in gap.reason
    assert [each is None for each in told] == [False, True]
    assert [record.levelno for record in caplog.records] == [logging.ERROR, logging.WARNING]
    writer.close()


def test_a_journal_that_does_not_come_back_holds_callers_and_then_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "STALL", 0.02)
    journal = Flaky()
    writer = started(journal, max_pending=10)
    journal.free.clear()

    def put_many() -> None:
        for _ in range(100):
            writer.put(b"x")

    with pytest.raises(cb.JournalFailed, match=r"none was written for 0\.02 s"):
        put_many()
    journal.free.set()
    with pytest.raises(cb.JournalFailed):
        writer.close()


def test_a_full_queue_holds_the_caller_until_there_is_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "STALL", LIMIT)
    journal = Flaky()
    writer = started(journal, max_pending=10)
    for n in range(5000):
        writer.put(b"%d" % n)
        assert writer.stats.pending <= 12 + writing.GROUP
    writer.close()
    journal.open("one")
    assert journal.last() == 5000


def test_a_full_queue_is_written_without_lingering(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "STALL", LIMIT)
    journal = Flaky()
    writer = started(journal, max_pending=2, linger=100 * LIMIT)
    for n in range(20):
        writer.put(b"%d" % n)
    assert writer.stats.groups >= 1
    writer.close()
    assert sum(journal.groups) == 20


def test_a_stream_of_records_wakes_the_writer_once_a_group() -> None:
    """It gathers behind a write, too, and sleeps only when nothing has come: who puts does not have to wake it."""
    journal = Flaky()
    writer = started(journal, linger=LIMIT)
    wakes: list[bool] = []
    wake = writer._wake.set

    def woken() -> None:
        wakes.append(True)
        wake()

    writer._wake.set = woken  # type: ignore[method-assign]
    for n in range(10):
        writer.put(b"a%d" % n)
        writer._urgent.set()  # as if the time were over
        with writer._progress:
            assert writer._progress.wait_for(lambda n=n: sum(journal.groups) > n, LIMIT)  # type: ignore[misc]
    assert not wakes
    writer.close()
    assert sum(journal.groups) == 10


def test_who_does_not_want_to_wait_is_heard_at_any_time() -> None:
    """Also where a record and the word come as the writer forgets the word before."""

    class Told(Flaky):
        def append(self, first: int, records: Sequence[bytes]) -> None:
            super().append(first, records)
            if b"b" in records:
                there.set()

    said: list[bytes] = []
    there = threading.Event()
    journal = Told()
    writer = started(journal, linger=100 * LIMIT)
    forget = writer._urgent.clear

    def forgotten() -> None:
        if not said:
            said.append(b"b")
            writer.put(b"b")
            with writer._progress:
                writer._hasten()
        forget()

    writer._urgent.clear = forgotten  # type: ignore[method-assign]
    writer.put(b"a")
    writer.flush()
    assert there.wait(LIMIT)
    writer.close()
    assert sum(journal.groups) == 2


def test_what_opening_raises_is_raised_at_the_start() -> None:
    class Broken(cb.MemoryJournal):
        def open(self, identity: str) -> Any:
            raise OSError("no such server")

    with pytest.raises(OSError, match="no such server"):
        JournalWriter(Broken(), "one").start()


async def test_committed_does_not_block_the_loop() -> None:
    journal = Flaky()
    writer = started(journal)
    journal.free.clear()
    writer.put(b"a")
    waiting = asyncio.ensure_future(writer.committed())
    await asyncio.to_thread(journal.writing.wait, LIMIT)
    assert not waiting.done()
    journal.free.set()
    await waiting
    journal.free.clear()
    writer.put(b"b")
    with pytest.raises(TimeoutError):
        await writer.committed(timeout=0.01)
    journal.free.set()
    writer.close()


@pytest.mark.parametrize("options", [{"on_failure": "ignore"}, {"max_pending": 0}, {"linger": -1}, {"retry": 0}])
def test_bad_options(options: Any) -> None:
    with pytest.raises(ValueError, match=r"on_failure|positive"):
        JournalWriter(cb.MemoryJournal(), "one", **options)


def test_a_hook_that_raises_stops_nothing(caplog: pytest.LogCaptureFixture) -> None:
    working = threading.Event()

    def told(failure: cb.JournalFailed | None) -> None:
        if failure is None:
            working.set()
        raise ArithmeticError("of the hook")

    journal = Flaky()
    writer = started(journal, on_failure="degrade", told=told)
    journal.error = OSError("no space left")
    writer.put(b"a")
    writer.flush(LIMIT)
    journal.error = None
    assert working.wait(LIMIT)
    writer.put(b"b")
    writer.close(LIMIT)
    assert (writer.stats.recorded, writer.stats.lost) == (1, 1)
    assert "the hook `told` of the journal one failed" in caplog.text


def test_what_comes_before_the_start_or_after_the_end_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    journal = Flaky()
    strict, lenient = JournalWriter(journal, "one"), JournalWriter(journal, "one", on_failure="degrade")
    for _ in range(2):
        with pytest.raises(cb.JournalFailed, match="the journal one is not open: a harness records from its start"):
            strict.put(b"a")
        strict.start()
        strict.put(b"b")
        strict.close()
    lenient.start()
    lenient.close()
    lenient.put(b"c")
    lenient.put(b"d")
    assert lenient.stats.lost == 2
    assert caplog.text.count("the journal one is not open") == 1
    journal.open("one")
    assert [record for _, record in journal.read(1, 9)] == [b"b"] * 2
