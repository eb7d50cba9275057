"""``SqliteJournal``: records in an SQLite database with a write-ahead log."""

import contextlib
import os
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

from callboard.multi_device.replay.errors import JournalConflict, JournalCorrupt
from callboard.multi_device.replay.journals.protocol import Recovered
from callboard.multi_device.replay.journals.seals import CURE, OLDER, Seal
from callboard.multi_device.replay.journals.sqlitelog import dropped

__all__ = ["SqliteJournal"]

TABLES = {
    "journal_records": "CREATE TABLE journal_records (identity TEXT NOT NULL, sequence INTEGER NOT NULL, "
    "record BLOB NOT NULL, crc INTEGER NOT NULL, PRIMARY KEY (identity, sequence)) WITHOUT ROWID",
    "journal_ends": "CREATE TABLE journal_ends (identity TEXT PRIMARY KEY, last INTEGER NOT NULL, "
    "discarded INTEGER NOT NULL, crc INTEGER NOT NULL) WITHOUT ROWID",
}
BUSY = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
SURROUNDINGS = (
    *(sqlite3.SQLITE_PERM, sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_INTERRUPT),
    *(sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PROTOCOL),
)
"""Errors of the disk, the system or the account; SQLite's other errors are those of a damaged file."""
SHORT = (sqlite3.SQLITE_IOERR_SHORT_READ, sqlite3.SQLITE_IOERR_CORRUPTFS)
"""Exceptions of those: errors of a file that is too short, or damaged by its file system."""


class SqliteJournal:
    """Keeps any number of identities in one file, which other programs can read.

    A group of records is one transaction, synchronised to the disk (``synchronous=FULL``) before it counts as written.
    Each record has a checksum; a damaged record or file raises :class:`JournalCorrupt` when it is read. Two writers of
    one identity: the second to append gets :class:`JournalConflict`, as does a writer that another program keeps from
    the file for longer than ``timeout``.

    Args:
        path: Path of the database; created if it does not exist.
        timeout: Seconds to wait for another connection's lock.
    """

    def __init__(self, path: str | os.PathLike[str], *, timeout: float = 5.0) -> None:
        self._path = os.fspath(path)
        self._timeout = timeout
        self._identity = ""
        self._connection: sqlite3.Connection | None = None
        self._log = Path(self._path + "-wal")
        self._seal = Seal(self._path, "")
        self._lock = threading.RLock()  # operations of other threads must not become part of a transaction

    def open(self, identity: str) -> Recovered:
        if self._connection is not None and identity != self._identity:
            raise JournalConflict(f"this journal object records {self._identity}; make another one for {identity}")
        self.close()
        self._identity, self._seal = identity, Seal(f"table journal_records in {self._path}", identity)
        torn = self._check_log()
        with self._errors():
            connection = sqlite3.connect(self._path, self._timeout, isolation_level=None, check_same_thread=False)
            self._connection = connection
            try:
                connection.execute("PRAGMA journal_mode=WAL")
                connection.execute("PRAGMA synchronous=FULL")
                with self._transaction(connection):
                    cut = dropped(self._log).nbytes if torn else 0  # no other connection writes now
                    self._check_tables(connection)
                    reason = f"{self._log}: the last transaction is torn" if cut else ""
                    return Recovered(self._check_ends(connection), cut, reason)
            except BaseException:  # a cancel, too
                self.close()
                raise

    def _check_log(self) -> bool:
        """Refuse a log that is damaged before its last transaction; True if that one may be torn, by a crash."""
        found = dropped(self._log)
        if found.transactions > 1 and found == dropped(self._log):  # another connection may have been writing it
            raise self._seal.corrupt(f"{self._log} is damaged, and SQLite would drop {found.nbytes} bytes at its end")
        return found.nbytes > 0

    def _check_tables(self, connection: sqlite3.Connection) -> None:
        there = dict(connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'table'").fetchall())
        if not there.keys() & TABLES.keys():
            # Damage of the first page can hide tables: its pages are then in the file, and unused.
            state = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
            if state != "ok":
                raise JournalCorrupt(f"{self._path}: {state}. {CURE}")
            for statement in TABLES.values():
                connection.execute(statement)
            return
        for name, statement in TABLES.items():
            if there.get(name) != statement:
                records = there.get("journal_records")
                older = isinstance(records, str) and "crc" not in records
                raise JournalCorrupt(
                    f"{self._path}: {OLDER if older else f'the table {name} is {there.get(name)}. {CURE}'}"
                )

    def _check_ends(self, connection: sqlite3.Connection) -> int:
        lowest, highest = connection.execute(
            "SELECT (SELECT min(sequence) FROM journal_records WHERE identity = :identity), "
            "(SELECT max(sequence) FROM journal_records WHERE identity = :identity)",
            {"identity": self._identity},
        ).fetchone()
        if lowest is None:
            connection.execute(
                "INSERT OR IGNORE INTO journal_ends VALUES (?, 0, 0, ?)", (self._identity, self._seal.of_range(0, 0))
            )
        last, discarded = self._range(connection)
        self._seal.check_ends(last, discarded, lowest, highest)
        return last

    def append(self, first: int, records: Sequence[bytes]) -> None:
        with self._lock, self._errors():
            connection = self._opened()
            with self._transaction(connection):
                last, discarded = self._range(connection)
                if first != last + 1:
                    raise JournalConflict(f"record {first} does not follow record {last}", last + 1, first)
                of = self._seal.of
                connection.executemany(
                    "INSERT INTO journal_records VALUES (?, ?, ?, ?)",
                    [(self._identity, n, record, of(n, record)) for n, record in enumerate(records, first)],
                )
                self._set_range(connection, first + len(records) - 1, discarded)

    def read(self, first: int, count: int) -> list[tuple[int, bytes]]:
        with self._lock, self._errors():
            connection = self._opened()
            with self._transaction(connection, "BEGIN"):  # one state of both tables
                last, discarded = self._range(connection)
                rows = connection.execute(
                    "SELECT sequence, record, crc FROM journal_records WHERE identity = ? AND sequence >= ? "
                    "ORDER BY sequence LIMIT ?",
                    (self._identity, first, count),
                )
                return self._seal.check_page(rows, first, count, last, discarded)

    def last(self) -> int:
        with self._lock, self._errors():
            return self._range(self._opened())[0]

    def discard(self, before: int) -> None:
        with self._lock, self._errors():
            connection = self._opened()
            with self._transaction(connection):
                last, discarded = self._range(connection)
                if before - 1 > discarded:
                    connection.execute(
                        "DELETE FROM journal_records WHERE identity = ? AND sequence < ?", (self._identity, before)
                    )
                    self._set_range(connection, last, min(before - 1, last))

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(sqlite3.Error):  # closing writes the log to the file, which may be damaged
                connection.close()

    def _range(self, connection: sqlite3.Connection) -> tuple[int, int]:
        row = connection.execute(
            "SELECT last, discarded, crc FROM journal_ends WHERE identity = ?", (self._identity,)
        ).fetchone()
        if row is None:
            raise self._seal.corrupt("its row of the table journal_ends is missing")
        return self._seal.range(*row)

    def _set_range(self, connection: sqlite3.Connection, last: int, discarded: int) -> None:
        connection.execute(
            "UPDATE journal_ends SET last = ?, discarded = ?, crc = ? WHERE identity = ?",
            (last, discarded, self._seal.of_range(last, discarded), self._identity),
        )

    def _opened(self) -> sqlite3.Connection:
        if self._connection is None:
            raise sqlite3.ProgrammingError("the journal is not open")
        return self._connection

    @contextlib.contextmanager
    def _transaction(self, connection: sqlite3.Connection, begin: str = "BEGIN IMMEDIATE") -> Iterator[None]:
        connection.execute(begin)
        try:
            yield
            connection.execute("COMMIT")
        except BaseException:  # a cancel, too
            if connection.in_transaction:
                with contextlib.suppress(sqlite3.Error):  # the first error is the cause
                    connection.execute("ROLLBACK")
            raise

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        """Translate SQLite's errors that mean a conflict or damage."""
        try:
            yield
        except sqlite3.ProgrammingError:
            raise
        except sqlite3.IntegrityError as e:
            raise JournalConflict(f"another program has written to {self._path}: {e}") from e
        except sqlite3.Error as e:
            code = getattr(e, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT)  # none: a text that is not UTF-8
            if code & 0xFF in BUSY:
                raise JournalConflict(f"another connection holds {self._path} for {self._timeout:g} s: {e}") from e
            # A file whose format is unknown is "read-only" to SQLite, too.
            is_unknown = code == sqlite3.SQLITE_READONLY and os.access(self._path, os.W_OK)
            if code & 0xFF in SURROUNDINGS and code not in SHORT and not is_unknown:
                raise
            raise self._seal.corrupt(f"SQLite cannot read it: {e}") from e
        except UnicodeDecodeError as e:  # the text of SQLite's error quotes damage
            raise self._seal.corrupt(f"SQLite cannot read it, and says {e.object!r}") from e
