"""The file journal after a crash: cut at every byte, changed at every byte, and killed while it writes."""

import os
import random
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

import callboard as cb
from callboard.multi_device.replay.journals.frames import HEADER, frames
from callboard.multi_device.replay.journals.seals import seed_of

RECORDS = [b"", b"a", b"\xcbJ1\n", bytes(range(40)), b"last"]
ROOT = Path(__file__).parents[3]


def files_of(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.journal"))


def written(folder: Path, records: list[bytes]) -> Path:
    journal = cb.FileJournal(folder)
    journal.open("one")
    journal.append(1, records)
    journal.close()
    return files_of(folder)[0]


def contents(folder: Path, **options: Any) -> tuple[Any, list[bytes]]:
    journal = cb.FileJournal(folder, **options)
    try:
        found = journal.open("one")
        return found, [record for _, record in journal.read(1, 1 << 20)]
    finally:
        journal.close()


@pytest.mark.slow
def test_cut_at_every_byte_a_prefix_is_left(tmp_path: Path) -> None:
    file = written(tmp_path, RECORDS)
    data = file.read_bytes()
    ends = [sum(HEADER.size + len(record) for record in RECORDS[:n]) for n in range(len(RECORDS) + 1)]
    assert ends[-1] == len(data)
    for size in range(len(data) + 1):
        file.write_bytes(data[:size])
        whole = sum(end <= size for end in ends) - 1
        found, records = contents(tmp_path)
        assert records == RECORDS[:whole], size
        assert (found.last, found.cut) == (whole, size - ends[whole])
        assert bool(found.reason) is bool(found.cut)
        assert file.stat().st_size == ends[whole]
        journal = cb.FileJournal(tmp_path)
        assert journal.open("one").cut == 0
        journal.append(whole + 1, [b"more"])
        assert journal.read(whole + 1, 5) == [(whole + 1, b"more")]
        journal.close()


def test_changed_at_every_byte_it_is_refused(tmp_path: Path) -> None:
    file = written(tmp_path, RECORDS)
    data = file.read_bytes()
    for at in range(len(data)):
        changed = bytearray(data)
        changed[at] ^= 0x41
        file.write_bytes(changed)
        with pytest.raises(cb.JournalCorrupt, match=r"record \d+ at byte \d+ is damaged"):
            contents(tmp_path)
        assert file.read_bytes() == changed  # nothing is cut off then


@pytest.mark.parametrize("size", [1, HEADER.size - 1, HEADER.size, 5000])
def test_zeros_at_the_end_are_a_torn_tail(tmp_path: Path, size: int) -> None:
    """A file system may have made the file longer before a crash, and not written it."""
    file = written(tmp_path, RECORDS)
    whole = file.stat().st_size
    with file.open("ab") as end:
        end.write(bytes(size))
    found, records = contents(tmp_path)
    assert (records, found.cut, file.stat().st_size) == (RECORDS, size, whole)


def test_salvage_keeps_what_is_before_the_damage_and_the_rest_beside_it(tmp_path: Path) -> None:
    journal = cb.FileJournal(tmp_path, segment_bytes=1)
    journal.open("one")
    for n in range(1, 4):
        journal.append(2 * n - 1, [b"%d" % n, b"x" * 20])
    journal.close()
    first, second, _ = files_of(tmp_path)
    data = bytearray(second.read_bytes())
    data[HEADER.size] ^= 1
    second.write_bytes(data)
    with pytest.raises(cb.JournalCorrupt):
        contents(tmp_path)
    found, records = contents(tmp_path, salvage=True)
    assert records == [b"1", b"x" * 20]
    assert found.last == 2
    assert found.cut > len(data)
    assert second.with_suffix(".damaged").read_bytes() == data
    assert len(list(tmp_path.glob("*.damaged"))) == 2
    assert first.exists()


def test_a_file_that_is_missing_is_an_error(tmp_path: Path) -> None:
    journal = cb.FileJournal(tmp_path, segment_bytes=1)
    journal.open("one")
    for n in range(1, 4):
        journal.append(n, [b"%d" % n])
    journal.close()
    files_of(tmp_path)[1].unlink()
    with pytest.raises(cb.JournalCorrupt, match="follows record 1: a file is missing"):
        contents(tmp_path)


def test_discarding_removes_whole_files(tmp_path: Path) -> None:
    journal = cb.FileJournal(tmp_path, segment_bytes=1)
    journal.open("one")
    for n in range(1, 6):
        journal.append(n, [b"%d" % n])
    journal.discard(4)
    assert [file.name[-10:] for file in files_of(tmp_path)] == ["04.journal", "05.journal"]
    assert journal.read(1, 10) == [(4, b"4"), (5, b"5")]
    journal.close()


@pytest.mark.parametrize("identity", ["", "../up", "a/b", "a b"])
def test_an_identity_is_a_file_name(tmp_path: Path, identity: str) -> None:
    with pytest.raises(ValueError, match="use letters, digits"):
        cb.FileJournal(tmp_path).open(identity)


WRITER = """
import sys
from callboard.multi_device.replay.journals.file import FileJournal
from callboard.multi_device.replay.writer import JournalWriter
writer = JournalWriter(FileJournal(sys.argv[1], segment_bytes=20000), "one", linger=0.0)
n = writer.start().last
while True:
    for _ in range(1 + n % 37):
        n += 1
        writer.put(b"%d " % n * (n % 50))
    writer.flush()
    print(n, flush=True)
"""


@pytest.mark.parametrize("kills", [3, pytest.param(100, marks=[pytest.mark.slow, pytest.mark.timeout(900)])])
@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="there is no SIGKILL here")
def test_a_process_that_is_killed_leaves_all_that_was_durable(tmp_path: Path, kills: int) -> None:
    rng = random.Random(kills)
    durable = 0
    for _ in range(kills):
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]),
        }
        process = subprocess.Popen(
            [sys.executable, "-c", WRITER, tmp_path], stdout=subprocess.PIPE, text=True, env=environment
        )
        assert process.stdout is not None
        for _ in range(rng.randrange(1, 60)):
            durable = int(process.stdout.readline())
        process.kill()  # in the middle of whatever it does
        rest = process.communicate(timeout=30)[0].split()
        durable = int(rest[-1]) if rest else durable
        found, records = contents(tmp_path)
        assert found.last >= durable
        assert records == [b"%d " % n * (n % 50) for n in range(1, found.last + 1)]


class Machine(RuleBasedStateMachine):
    """Groups, crashes in the middle of a group, new starts, discarding: what is read is a prefix, and nothing else."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name)
        self.model: list[bytes] = []
        self.discarded = 0
        self.start()

    def start(self) -> None:
        self.journal = cb.FileJournal(self.path, segment_bytes=100)
        self.found = self.journal.open("one")

    def teardown(self) -> None:
        self.journal.close()
        self.folder.cleanup()

    @rule(records=st.lists(st.binary(max_size=40), min_size=1, max_size=5))
    def append(self, records: list[bytes]) -> None:
        self.journal.append(len(self.model) + 1, records)
        self.model += records

    @rule(off=st.integers(-3, 3).filter(bool))
    def append_elsewhere(self, off: int) -> None:
        with pytest.raises(cb.JournalConflict):
            self.journal.append(len(self.model) + 1 + off, [b"x"])

    @rule(records=st.lists(st.binary(max_size=40), min_size=1, max_size=5), part=st.floats(0, 1))
    def crash_in_a_group(self, records: list[bytes], part: float) -> None:
        self.journal.close()
        data = frames(len(self.model) + 1, records, seed_of("one"))
        size = int(part * len(data))
        with files_of(self.path)[-1].open("ab") as file:
            file.write(data[:size])
        ends = [len(frames(1, records[:n], 0)) for n in range(len(records) + 1)]
        whole = sum(end <= size for end in ends) - 1
        self.model += records[:whole]
        self.start()
        assert self.found.cut == size - ends[whole]

    @rule()
    def start_again(self) -> None:
        self.journal.close()
        self.start()
        assert self.found.cut == 0

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def discard(self, data: st.DataObject) -> None:
        before = data.draw(st.integers(1, len(self.model)))
        self.journal.discard(before)
        self.discarded = max(self.discarded, before - 1)

    @invariant()
    def all_that_is_kept_is_read(self) -> None:
        assert self.journal.last() == len(self.model)
        expected = list(enumerate(self.model, 1))
        found = self.journal.read(1, 1000)
        assert found == expected[len(expected) - len(found) :]
        assert found[: len(found)] and found[0][0] <= self.discarded + 1 if self.model else not found


TestMachine = Machine.TestCase
TestMachine.settings = settings(max_examples=25, stateful_step_count=15, deadline=None)
