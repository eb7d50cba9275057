"""Journals that are damaged, of an earlier version, or taken by another writer, beyond the conformance suite."""

import os
import random
import signal
import sqlite3
import struct
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import servers

import callboard as cb
from callboard.multi_device.replay.journals.file import FileJournal
from callboard.multi_device.replay.journals.protocol import Recovered

ROOT = Path(__file__).parents[3]
RECORDS = [b"a", b"", b"ccc"]


def old_frames(first: int, records: list[bytes]) -> bytes:
    """Frames as version 1 wrote them."""
    parts = []
    for n, record in enumerate(records, first):
        crc = zlib.crc32(record, zlib.crc32(struct.pack("<Q", n)))
        parts.append(struct.pack("<4sIIQ", b"\xcbJ1\n", len(record), crc, n) + record)
    return b"".join(parts)


def read(journal: Any, identity: str = "one") -> list[bytes]:
    """Open, read all, and close."""
    try:
        journal.open(identity)
        return [record for _, record in journal.read(1, 1000)]
    finally:
        journal.close()


# -- files -------------------------------------------------------------------------------------------------------------


def test_a_file_of_an_earlier_version_is_read_and_continued(tmp_path: Path) -> None:
    file = tmp_path / f"one-{1:020d}.journal"
    file.write_bytes(old_frames(1, RECORDS) + b"\xcbJ1\n\xff")
    journal = cb.FileJournal(tmp_path)
    assert (journal.open("one").last, journal.open("one").cut) == (3, 0)
    journal.append(4, [b"new"])
    journal.close()
    assert read(cb.FileJournal(tmp_path)) == [*RECORDS, b"new"]
    data = bytearray(file.read_bytes())
    for at in range(len(old_frames(1, RECORDS))):
        changed = bytearray(data)
        changed[at] ^= 4
        file.write_bytes(changed)
        with pytest.raises(cb.JournalCorrupt):
            read(cb.FileJournal(tmp_path))


def test_a_file_of_an_earlier_version_may_begin_anywhere(tmp_path: Path) -> None:
    (tmp_path / f"one-{5:020d}.journal").write_bytes(old_frames(5, RECORDS))
    assert read(cb.FileJournal(tmp_path)) == RECORDS


def test_the_first_file_may_be_missing_only_if_it_was_discarded(tmp_path: Path) -> None:
    journal = cb.FileJournal(tmp_path, segment_bytes=1)
    journal.open("one")
    for n in range(1, 5):
        journal.append(n, [b"%d" % n])
    journal.discard(3)
    journal.close()
    assert read(cb.FileJournal(tmp_path)) == [b"3", b"4"]
    (tmp_path / f"one-{3:020d}.journal").unlink()
    with pytest.raises(cb.JournalCorrupt, match="record 3 must be there"):
        read(cb.FileJournal(tmp_path))
    (tmp_path / f"one-{4:020d}.journal").unlink()
    with pytest.raises(cb.JournalCorrupt, match="record 3 must be there"):
        read(cb.FileJournal(tmp_path))


def test_damage_after_opening_is_noticed_by_reading(tmp_path: Path) -> None:
    journal = cb.FileJournal(tmp_path)
    journal.open("one")
    journal.append(1, RECORDS)
    file = next(tmp_path.glob("*.journal"))
    data = file.read_bytes()
    for size in range(len(data)):
        file.write_bytes(data[:size])
        with pytest.raises(cb.JournalCorrupt, match="damaged or missing"):
            journal.read(1, 10)
    journal.close()


def test_a_file_that_another_program_has_written_is_a_conflict(tmp_path: Path) -> None:
    journal = cb.FileJournal(tmp_path)
    journal.open("one")
    journal.append(1, RECORDS)
    file = next(tmp_path.glob("*.journal"))
    with file.open("ab") as other:
        other.write(b"x")
    with pytest.raises(cb.JournalConflict, match="another writer has taken"):
        journal.append(4, [b"d"])
    assert file.read_bytes().endswith(b"x")
    journal.close()


@pytest.mark.skipif(os.name != "posix", reason="the lock is a posix one")
def test_a_writer_whose_lock_file_was_replaced_is_refused(tmp_path: Path) -> None:
    journal, other = cb.FileJournal(tmp_path, segment_bytes=1), cb.FileJournal(tmp_path, segment_bytes=1)
    journal.open("one")
    journal.append(1, [b"a"])
    (tmp_path / "one.lock").unlink()
    journal.append(2, [b"b"])
    other.open("one")
    with pytest.raises(cb.JournalConflict, match="another writer has taken"):
        journal.append(3, [b"lost"])
    other.append(3, [b"c"])
    other.close()
    journal.close()
    assert read(cb.FileJournal(tmp_path)) == [b"a", b"b", b"c"]


def test_a_write_that_fails_leaves_a_prefix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = cb.FileJournal(tmp_path)
    journal.open("one")
    journal.append(1, RECORDS)

    def full(descriptor: int) -> None:
        os.truncate(descriptor, os.fstat(descriptor).st_size - 2)
        raise OSError("no space")

    with monkeypatch.context() as patch:
        patch.setattr(sys.modules[FileJournal.__module__], "_sync", full)
        with pytest.raises(OSError, match="no space"):
            journal.append(4, [b"lost"])
    with pytest.raises(OSError, match="closed"):
        journal.append(4, [b"not behind a torn record"])
    found = journal.open("one")
    assert found.last == 3
    assert found.cut > 0
    journal.append(4, [b"d"])
    journal.close()
    assert read(cb.FileJournal(tmp_path)) == [*RECORDS, b"d"]


# -- SQLite ------------------------------------------------------------------------------------------------------------


def test_a_database_of_an_earlier_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    with sqlite3.connect(path) as connection:
        connection.executescript(
            "CREATE TABLE journal_records (identity TEXT NOT NULL, sequence INTEGER NOT NULL, record BLOB NOT NULL,"
            "PRIMARY KEY (identity, sequence)) WITHOUT ROWID;"
            "CREATE TABLE journal_ends (identity TEXT PRIMARY KEY, last INTEGER NOT NULL) WITHOUT ROWID;"
        )
    connection.close()
    with pytest.raises(cb.JournalCorrupt, match="Journals of earlier versions"):
        cb.SqliteJournal(path).open("one")


def test_a_schema_that_is_no_text_is_damage(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    journal = cb.SqliteJournal(path)
    journal.open("one")
    journal.close()
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA writable_schema=ON")
        connection.execute("UPDATE sqlite_master SET sql = CAST(sql AS BLOB) WHERE name = 'journal_records'")
    connection.close()
    with pytest.raises(cb.JournalCorrupt, match="the table journal_records is b'CREATE TABLE"):
        journal.open("one")


def test_a_database_that_another_connection_holds_is_a_conflict(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    journal = cb.SqliteJournal(path, timeout=0.01)
    journal.open("one")
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(cb.JournalConflict, match="another connection holds"):
        journal.append(1, [b"a"])
    with pytest.raises(cb.JournalConflict, match="another connection holds"):
        cb.SqliteJournal(path, timeout=0.01).open("two")
    other.execute("ROLLBACK")
    journal.append(1, [b"a"])
    other.close()
    journal.close()


KILLED = """
import os, signal, sys
from callboard.multi_device.replay.journals.sqlite import SqliteJournal
journal = SqliteJournal(sys.argv[1])
journal.open("one")
for first in range(1, 31, 10):
    journal.append(first, [b"%d" % n * n for n in range(first, first + 10)])
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The files of a process that was killed: its records are in the write-ahead log."""
    if not hasattr(signal, "SIGKILL"):
        pytest.skip("there is no SIGKILL here")
    folder = tmp_path_factory.mktemp("killed")
    path = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-c", KILLED, str(folder / "journal.db")]
    ended = subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, timeout=60, check=False)
    assert ended.returncode == -signal.SIGKILL
    return {name: (folder / name).read_bytes() for name in ("journal.db", "journal.db-wal")}


def log_contents(folder: Path, killed: dict[str, bytes], log: bytes) -> tuple[Recovered, list[bytes]]:
    """What a journal says and has, with this log."""
    for file in folder.iterdir():
        file.unlink()
    (folder / "journal.db").write_bytes(killed["journal.db"])
    (folder / "journal.db-wal").write_bytes(log)
    journal = cb.SqliteJournal(folder / "journal.db")
    try:
        return journal.open("one"), [record for _, record in journal.read(1, 100)]
    finally:
        journal.close()


@pytest.mark.slow
def test_a_changed_bit_of_the_log_of_a_killed_process_is_noticed(tmp_path: Path, killed: dict[str, bytes]) -> None:
    """SQLite itself drops what follows it in the log, without an error."""
    log, wanted = killed["journal.db-wal"], [b"%d" % n * n for n in range(1, 31)]
    found, records = log_contents(tmp_path, killed, log)
    assert (records, found.last, found.cut) == (wanted, 30, 0)
    rng, refused = random.Random(3), 0
    for n in range(120):
        changed = bytearray(log)
        for at in [n * 8 * len(log) // 120] if n % 2 else rng.sample(range(8 * len(log)), 2):
            changed[at >> 3] ^= 1 << (at & 7)
        try:
            found, records = log_contents(tmp_path, killed, bytes(changed))
        except cb.JournalCorrupt:
            refused += 1
            left = (tmp_path / "journal.db-wal").read_bytes()
            assert left == changed, "the damage is there for a second look"
            continue
        assert found.cut > 0  # its last transaction is torn
        assert records == wanted[: len(records)]
        assert len(records) >= 20
    assert refused > 60


def test_a_log_that_a_crash_cut_off_is_a_torn_tail(tmp_path: Path, killed: dict[str, bytes]) -> None:
    log, wanted = killed["journal.db-wal"], [b"%d" % n * n for n in range(1, 31)]
    for size in range(0, len(log), 1009):
        found, records = log_contents(tmp_path, killed, log[:size])
        assert records == wanted[: found.last]


# -- servers -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def postgres_server() -> Iterator[servers.Server]:
    with tempfile.TemporaryDirectory(prefix="pg") as folder, servers.postgres(Path(folder)) as server:
        yield server


@pytest.fixture
def redis_server() -> Iterator[servers.Server]:
    with tempfile.TemporaryDirectory(prefix="redis") as folder, servers.redis(Path(folder)) as server:
        yield server


@pytest.mark.slow
def test_tables_of_postgres_that_are_old_damaged_or_taken(postgres_server: servers.Server) -> None:
    import psycopg

    with psycopg.connect(postgres_server.address, autocommit=True) as connection:
        connection.execute("CREATE TABLE callboard_journal_ends (identity text PRIMARY KEY, last bigint NOT NULL)")
        connection.execute("CREATE TABLE callboard_journal (identity text, sequence bigint, record bytea)")
        with pytest.raises(cb.JournalCorrupt, match="Journals of earlier versions"):
            cb.PostgresJournal(postgres_server.address).open("one")
        connection.execute("DROP TABLE callboard_journal, callboard_journal_ends")

        journal = cb.PostgresJournal(postgres_server.address)
        journal.open("one")
        journal.append(1, RECORDS)
        connection.execute("INSERT INTO callboard_journal VALUES ('one', 4, 'd', 0)")
        with pytest.raises(cb.JournalConflict, match="another program has written"):
            journal.append(4, [b"mine"])
        journal.close()
        with pytest.raises(cb.JournalCorrupt, match="records 1 to 4, and records 1 to 3 must be there"):
            journal.open("one")
        connection.execute("DELETE FROM callboard_journal WHERE sequence = 4")

        # The error of a server whose own file is damaged.
        connection.execute(
            "CREATE FUNCTION damaged(record bytea) RETURNS bytea AS "
            "$$ BEGIN RAISE 'invalid page' USING ERRCODE = 'XX001'; END $$ LANGUAGE plpgsql"
        )
        connection.execute("ALTER TABLE callboard_journal RENAME TO kept")
        connection.execute(
            "CREATE VIEW callboard_journal AS SELECT identity, sequence, damaged(record) AS record, crc FROM kept"
        )
        with pytest.raises(cb.JournalCorrupt, match="the server cannot read it: invalid page"):
            read(journal)
        connection.execute("DROP VIEW callboard_journal")
        connection.execute("ALTER TABLE kept RENAME TO callboard_journal")
        assert read(journal) == RECORDS


def test_keys_of_redis_that_are_old_or_damaged(redis_server: servers.Server) -> None:
    import redis

    with redis.Redis.from_url(redis_server.address) as client:
        client.rpush("callboard:{one}:records", *RECORDS)
        client.set("callboard:{one}:last", "3")
        with pytest.raises(cb.JournalCorrupt, match="Journals of earlier versions"):
            cb.RedisJournal(redis_server.address).open("one")
        client.flushall()

        journal = cb.RedisJournal(redis_server.address)
        journal.open("one")
        journal.append(1, RECORDS)
        journal.discard(2)
        last = client.get("callboard:{one}:last")
        assert isinstance(last, bytes)
        for key, value in (("last", "3 00000000"), ("last", "x"), ("discarded", "2"), ("records", "text")):
            saved = client.dump(f"callboard:{{one}}:{key}")
            assert isinstance(saved, bytes)
            client.set(f"callboard:{{one}}:{key}", value)
            with pytest.raises(cb.JournalCorrupt):
                journal.read(1, 10)
            with pytest.raises(cb.JournalCorrupt):
                cb.RedisJournal(redis_server.address).open("one")
            client.restore(f"callboard:{{one}}:{key}", 0, saved, replace=True)
        client.set("callboard:{two}:last", last)  # the counter of another identity
        with pytest.raises(cb.JournalCorrupt, match="does not match its checksum"):
            cb.RedisJournal(redis_server.address).open("two")
        assert journal.read(1, 10) == [(2, b""), (3, b"ccc")]
        journal.close()


# -- the harness -------------------------------------------------------------------------------------------------------


async def test_a_record_that_is_no_entry_is_named() -> None:
    journal = cb.MemoryJournal()
    journal.open("shop")
    journal.append(1, [b"\xc1"])
    journal.close()
    async with cb.ReplayHarness("record", journal, "shop") as harness:
        await harness.committed()
        with pytest.raises(cb.JournalCorrupt, match="record 1 of the journal is no entry"):
            list(harness.entries())
