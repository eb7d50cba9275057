"""``SqliteJournal``: records in an SQLite database with a write-ahead log."""

import os
import sqlite3
import threading
from collections.abc import Sequence

from callboard.multi_device.replay.errors import JournalConflict
from callboard.multi_device.replay.journals.protocol import Recovered

__all__ = ["SqliteJournal"]

SCHEMA = """
CREATE TABLE IF NOT EXISTS journal_records (
    identity TEXT NOT NULL, sequence INTEGER NOT NULL, record BLOB NOT NULL, PRIMARY KEY (identity, sequence)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS journal_ends (identity TEXT PRIMARY KEY, last INTEGER NOT NULL) WITHOUT ROWID;
"""


class SqliteJournal:
    """Keeps any number of identities in one file, which other programs can read.

    A group of records is one transaction, synchronised to the disk (``synchronous=FULL``) before it counts as written.
    Two writers of one identity: the second to append gets :class:`JournalConflict`.

    Args:
        path: Path of the database; created if it does not exist.
        timeout: Seconds to wait for another connection's lock.
    """

    def __init__(self, path: str | os.PathLike[str], *, timeout: float = 5.0) -> None:
        self._path = os.fspath(path)
        self._timeout = timeout
        self._identity = ""
        self._connection: sqlite3.Connection | None = None
        self._lock = threading.RLock()  # operations of other threads must not become part of a transaction

    def open(self, identity: str) -> Recovered:
        self.close()
        connection = sqlite3.connect(self._path, self._timeout, isolation_level=None, check_same_thread=False)
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=FULL")
            connection.executescript(SCHEMA)
            connection.execute("INSERT OR IGNORE INTO journal_ends VALUES (?, 0)", (identity,))
        except BaseException:  # a cancel, too
            connection.close()
            raise
        self._identity, self._connection = identity, connection
        return Recovered(self.last())

    def append(self, first: int, records: Sequence[bytes]) -> None:
        with self._lock:
            connection = self._opened()
            connection.execute("BEGIN IMMEDIATE")
            try:
                self._insert(connection, first, records)
                connection.execute("COMMIT")
            except BaseException:  # a cancel, too
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise

    def _insert(self, connection: sqlite3.Connection, first: int, records: Sequence[bytes]) -> None:
        expected = self.last() + 1
        if first != expected:
            raise JournalConflict(f"record {first} does not follow record {expected - 1}", expected, first)
        connection.executemany(
            "INSERT INTO journal_records VALUES (?, ?, ?)",
            [(self._identity, sequence, record) for sequence, record in enumerate(records, first)],
        )
        connection.execute(
            "UPDATE journal_ends SET last = ? WHERE identity = ?", (first + len(records) - 1, self._identity)
        )

    def read(self, first: int, count: int) -> list[tuple[int, bytes]]:
        with self._lock:
            found = self._opened().execute(
                "SELECT sequence, record FROM journal_records WHERE identity = ? AND sequence >= ? "
                "ORDER BY sequence LIMIT ?",
                (self._identity, first, count),
            )
            return [(sequence, bytes(record)) for sequence, record in found]

    def last(self) -> int:
        with self._lock:
            found = self._opened().execute("SELECT last FROM journal_ends WHERE identity = ?", (self._identity,))
            return int(found.fetchone()[0])

    def discard(self, before: int) -> None:
        with self._lock:
            self._opened().execute(
                "DELETE FROM journal_records WHERE identity = ? AND sequence < ?", (self._identity, before)
            )

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _opened(self) -> sqlite3.Connection:
        if self._connection is None:
            raise sqlite3.ProgrammingError("the journal is not open")
        return self._connection
