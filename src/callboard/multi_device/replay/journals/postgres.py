"""``PostgresJournal``: records in a PostgreSQL database, by psycopg."""

import contextlib
import threading
from collections.abc import Sequence
from typing import Any

from callboard.core.errors import BackendUnavailable
from callboard.multi_device.replay.errors import JournalConflict
from callboard.multi_device.replay.journals.protocol import Recovered

__all__ = ["PostgresJournal"]

SCHEMA = """
CREATE TABLE IF NOT EXISTS callboard_journal_ends (identity text PRIMARY KEY, last bigint NOT NULL);
CREATE TABLE IF NOT EXISTS callboard_journal (
    identity text NOT NULL, sequence bigint NOT NULL, record bytea NOT NULL, PRIMARY KEY (identity, sequence)
)
"""
LOCK = 0x63616C6C
"""First key of the advisory locks: one per identity, held by its writer."""
HANDOVER = 500
"""Milliseconds to wait for it: a server may notice a little late that a connection has ended."""


class PostgresJournal:
    """Keeps any number of identities in two tables, which it makes if they are not there.

    A group of records is one transaction, by ``COPY``; it counts as written when the server has answered the commit,
    with the durability of the server's ``synchronous_commit``. A second writer of an identity is refused when it opens
    it.

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
        self._lock = threading.Lock()  # a transaction is not to be mixed with a reader's

    def open(self, identity: str) -> Recovered:
        self.close()
        connection: Any = self._psycopg.connect(
            self._conninfo, autocommit=True, connect_timeout=self._connect_timeout, options=self._options
        )
        try:
            with connection.transaction():
                # CREATE … IF NOT EXISTS of two sessions at once may fail for one of them.
                connection.execute("SELECT pg_advisory_xact_lock(%s)", (LOCK,))
                for statement in SCHEMA.split(";"):
                    connection.execute(statement)
            connection.execute(f"SET lock_timeout = {HANDOVER}")
            try:
                connection.execute("SELECT pg_advisory_lock(%s, hashtext(%s))", (LOCK, identity))
            except self._psycopg.errors.LockNotAvailable as e:
                raise JournalConflict(f"another writer has the journal {identity}") from e
            connection.execute("SET lock_timeout = 0")
            connection.execute("INSERT INTO callboard_journal_ends VALUES (%s, 0) ON CONFLICT DO NOTHING", (identity,))
        except BaseException:  # a cancel, too
            connection.close()
            raise
        self._identity, self._connection = identity, connection
        return Recovered(self.last())

    def append(self, first: int, records: Sequence[bytes]) -> None:
        with self._lock:
            connection = self._opened()
            with connection.transaction():
                row = connection.execute(
                    "SELECT last FROM callboard_journal_ends WHERE identity = %s FOR UPDATE", (self._identity,)
                ).fetchone()
                if first != row[0] + 1:
                    raise JournalConflict(f"record {first} does not follow record {row[0]}", row[0] + 1, first)
                with connection.cursor().copy("COPY callboard_journal FROM STDIN (FORMAT binary)") as copy:
                    copy.set_types(["text", "int8", "bytea"])
                    for sequence, record in enumerate(records, first):
                        copy.write_row((self._identity, sequence, record))
                connection.execute(
                    "UPDATE callboard_journal_ends SET last = %s WHERE identity = %s",
                    (first + len(records) - 1, self._identity),
                )

    def read(self, first: int, count: int) -> list[tuple[int, bytes]]:
        with self._lock:
            found = self._opened().execute(
                "SELECT sequence, record FROM callboard_journal WHERE identity = %s AND sequence >= %s "
                "ORDER BY sequence LIMIT %s",
                (self._identity, first, count),
            )
            return [(sequence, bytes(record)) for sequence, record in found.fetchall()]

    def last(self) -> int:
        with self._lock:
            row = (
                self._opened()
                .execute("SELECT last FROM callboard_journal_ends WHERE identity = %s", (self._identity,))
                .fetchone()
            )
        return int(row[0])

    def discard(self, before: int) -> None:
        with self._lock:
            self._opened().execute(
                "DELETE FROM callboard_journal WHERE identity = %s AND sequence < %s", (self._identity, before)
            )

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(self._psycopg.Error):  # of a connection that is lost; the server lets go then
                connection.execute("SELECT pg_advisory_unlock_all()")
            connection.close()

    def _opened(self) -> Any:
        if self._connection is None:
            raise self._psycopg.OperationalError("the journal is not open")
        return self._connection
