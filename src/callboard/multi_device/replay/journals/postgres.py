"""``PostgresJournal``: records in a PostgreSQL database, by psycopg."""

import contextlib
import threading
from collections.abc import Iterator, Sequence
from typing import Any

from callboard.core.errors import BackendUnavailable
from callboard.multi_device.replay.errors import JournalConflict
from callboard.multi_device.replay.journals.protocol import Recovered
from callboard.multi_device.replay.journals.seals import OLDER, Seal

__all__ = ["PostgresJournal"]

SCHEMA = """
CREATE TABLE IF NOT EXISTS callboard_journal_ends (
    identity text PRIMARY KEY, last bigint NOT NULL, discarded bigint NOT NULL, crc bigint NOT NULL
);
CREATE TABLE IF NOT EXISTS callboard_journal (
    identity text NOT NULL, sequence bigint NOT NULL, record bytea NOT NULL, crc bigint NOT NULL,
    PRIMARY KEY (identity, sequence)
)
"""
LOCK = 0x63616C6C
"""First key of the advisory locks: one per identity, held by its writer."""
HANDOVER = 500
"""Milliseconds to wait for it: a server may notice a little late that a connection has ended."""


class PostgresJournal:
    """Keeps any number of identities in two tables, which it makes if they are not there.

    A group of records is one transaction, by ``COPY``; it counts as written when the server has answered the commit,
    with the durability of the server's ``synchronous_commit``. Each record has a checksum; a damaged one raises
    :class:`JournalCorrupt` when it is read. A second writer of an identity is refused when it opens it.

    Args:
        conninfo: Connection string for ``psycopg.connect``.
        connect_timeout: Seconds.
        statement_timeout: Seconds that a statement may take.

    Raises:
        BackendUnavailable: There is no psycopg: ``pip install "callboard[journal-postgres]"``.
    """

    def __init__(self, conninfo: str, *, connect_timeout: float = 10.0, statement_timeout: float = 30.0) -> None:
        try:
            import psycopg
        except ImportError as e:
            raise BackendUnavailable('PostgresJournal needs psycopg: pip install "callboard[journal-postgres]"') from e
        self._psycopg = psycopg
        self._conninfo = conninfo
        self._connect_timeout = max(1, round(connect_timeout))
        self._options = f"-c statement_timeout={round(statement_timeout * 1000)}"
        self._identity = ""
        self._connection: Any = None
        self._seal = Seal("", "")
        self._lock = threading.Lock()  # a transaction is not to be mixed with a reader's

    def open(self, identity: str) -> Recovered:
        if self._connection is not None and identity != self._identity:
            raise JournalConflict(f"this journal object records {self._identity}; make another one for {identity}")
        self.close()
        connection: Any = self._psycopg.connect(
            self._conninfo, autocommit=True, connect_timeout=self._connect_timeout, options=self._options
        )
        database = f"{connection.info.dbname} of the PostgreSQL server at {connection.info.host}"
        self._identity, self._seal = identity, Seal(f"table callboard_journal in {database}", identity)
        self._connection = connection
        try:
            with self._errors():
                self._make_tables(connection)
                self._take(connection)
                return Recovered(self._check_ends(connection))
        except BaseException:  # a cancel, too
            self.close()
            raise

    def _make_tables(self, connection: Any) -> None:
        with connection.transaction():
            # CREATE … IF NOT EXISTS of two sessions at once may fail for one of them.
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (LOCK,))
            for statement in SCHEMA.split(";"):
                connection.execute(statement)

    def _take(self, connection: Any) -> None:
        connection.execute(f"SET lock_timeout = {HANDOVER}")
        try:
            connection.execute("SELECT pg_advisory_lock(%s, hashtext(%s))", (LOCK, self._identity))
        except self._psycopg.errors.LockNotAvailable as e:
            raise JournalConflict(f"another writer has the journal {self._identity}") from e
        connection.execute("SET lock_timeout = 0")

    def _check_ends(self, connection: Any) -> int:
        ends = connection.execute(
            "SELECT min(sequence), max(sequence) FROM callboard_journal WHERE identity = %s", (self._identity,)
        ).fetchone()
        if ends == (None, None):
            connection.execute(
                "INSERT INTO callboard_journal_ends (identity, last, discarded, crc) VALUES (%s, 0, 0, %s) "
                "ON CONFLICT DO NOTHING",
                (self._identity, self._seal.of_range(0, 0)),
            )
        last, discarded = self._range(connection)
        self._seal.check_ends(last, discarded, *ends)
        return last

    def append(self, first: int, records: Sequence[bytes]) -> None:
        with self._lock, self._errors():
            connection = self._opened()
            with connection.transaction():
                last, discarded = self._range(connection, "FOR UPDATE")
                if first != last + 1:
                    raise JournalConflict(f"record {first} does not follow record {last}", last + 1, first)
                statement = "COPY callboard_journal (identity, sequence, record, crc) FROM STDIN (FORMAT binary)"
                with connection.cursor().copy(statement) as copy:
                    copy.set_types(["text", "int8", "bytea", "int8"])
                    for sequence, record in enumerate(records, first):
                        copy.write_row((self._identity, sequence, record, self._seal.of(sequence, record)))
                self._set_range(connection, first + len(records) - 1, discarded)

    def read(self, first: int, count: int) -> list[tuple[int, bytes]]:
        with self._lock, self._errors():
            connection = self._opened()
            last, discarded = self._range(connection)
            found = connection.execute(
                "SELECT sequence, record, crc FROM callboard_journal WHERE identity = %s AND sequence >= %s "
                "ORDER BY sequence LIMIT %s",
                (self._identity, first, count),
            )
            return self._seal.check_page(found.fetchall(), first, count, last, discarded)

    def last(self) -> int:
        with self._lock, self._errors():
            return self._range(self._opened())[0]

    def discard(self, before: int) -> None:
        with self._lock, self._errors():
            connection = self._opened()
            with connection.transaction():
                last, discarded = self._range(connection, "FOR UPDATE")
                if before - 1 > discarded:
                    connection.execute(
                        "DELETE FROM callboard_journal WHERE identity = %s AND sequence < %s", (self._identity, before)
                    )
                    self._set_range(connection, last, min(before - 1, last))

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(self._psycopg.Error):  # of a connection that is lost; the server lets go then
                connection.execute("SELECT pg_advisory_unlock_all()")
            connection.close()

    def _range(self, connection: Any, lock: str = "") -> tuple[int, int]:
        row = connection.execute(
            f"SELECT last, discarded, crc FROM callboard_journal_ends WHERE identity = %s {lock}", (self._identity,)
        ).fetchone()
        if row is None:
            raise self._seal.corrupt("its row of the table callboard_journal_ends is missing")
        return self._seal.range(*row)

    def _set_range(self, connection: Any, last: int, discarded: int) -> None:
        connection.execute(
            "UPDATE callboard_journal_ends SET last = %s, discarded = %s, crc = %s WHERE identity = %s",
            (last, discarded, self._seal.of_range(last, discarded), self._identity),
        )

    def _opened(self) -> Any:
        if self._connection is None:
            raise self._psycopg.OperationalError("the journal is not open")
        return self._connection

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        """Translate the server's errors that mean a conflict or damage."""
        try:
            yield
        except self._psycopg.errors.UndefinedColumn as e:
            raise self._seal.corrupt(OLDER) from e
        except self._psycopg.errors.UniqueViolation as e:
            raise JournalConflict(f"another program has written records of {self._identity}: {e}") from e
        except self._psycopg.Error as e:
            if str(e.sqlstate or "").startswith("XX"):  # internal errors, and damaged data and indexes
                raise self._seal.corrupt(f"the server cannot read it: {e}") from e
            raise
