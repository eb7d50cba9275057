"""A journal in Cassandra: a partition for each range of sequences, and ``INSERT … IF NOT EXISTS``.

``python examples/journals/cassandra_journal.py 127.0.0.1`` records to a cluster and reads the records back.
"""

import sys
import threading
from collections.abc import Sequence
from typing import Any

import callboard as cb
from callboard.multi_device.replay import Recovered
from callboard.multi_device.replay.journals.seals import Seal

COLUMNS = "identity text, part bigint, sequence bigint, record blob, crc bigint"
TABLES = (
    f"CREATE TABLE IF NOT EXISTS journal_records ({COLUMNS}, PRIMARY KEY ((identity, part), sequence))",
    "CREATE TABLE IF NOT EXISTS journal_ends (identity text PRIMARY KEY, last bigint, discarded bigint, crc bigint)",
)
OF = "FROM journal_records WHERE identity = ? AND part = ?"
INSERT = "INSERT INTO journal_records (identity, part, sequence, record, crc) VALUES (?, ?, ?, ?, ?) IF NOT EXISTS"
READ = f"SELECT sequence, record, crc {OF} AND sequence >= ? AND sequence <= ? LIMIT ?"
TOP = f"SELECT sequence {OF} ORDER BY sequence DESC LIMIT 1"
DELETE = f"DELETE {OF} AND sequence <= ?"
ENDS = "SELECT last, discarded, crc FROM journal_ends WHERE identity = ?"
SET_ENDS = "INSERT INTO journal_ends (identity, last, discarded, crc) VALUES (?, ?, ?, ?)"
PART = 10_000
"""Sequences of one partition."""


class CassandraJournal:
    """Records as rows; another table has the range of sequences that must be there.

    Args:
        session: A ``cassandra.cluster.Session`` of a keyspace, with consistency ``QUORUM``.
    """

    def __init__(self, session: Any) -> None:
        self._session = session
        self._identity: str | None = None
        self._seal = Seal("", "")
        self._lock = threading.RLock()

    def open(self, identity: str) -> Recovered:
        if self._identity not in (None, identity):
            raise cb.JournalConflict(f"this object records {self._identity}; make another one for {identity}")
        for table in TABLES:
            self._session.execute(table)
        statements = INSERT, READ, TOP, DELETE, ENDS, SET_ENDS
        self._prepared = {text: self._session.prepare(text) for text in statements}
        self._identity, self._seal = identity, Seal("Cassandra", identity)
        return Recovered(self.last())

    def append(self, first: int, records: Sequence[bytes]) -> None:
        with self._lock:
            last, discarded = self._range()
            if first != last + 1:
                raise cb.JournalConflict(f"record {first} does not follow record {last}", last + 1, first)
            for n, record in enumerate(records, first):  # in order: what was inserted before a failure is a prefix
                if not self._run(INSERT, n // PART, n, record, self._seal.of(n, record)).was_applied:
                    raise cb.JournalConflict(f"another writer took {n}", self.last() + 1, n)
            self._run(SET_ENDS, *self._ends(first + len(records) - 1, discarded))

    def read(self, first: int, count: int) -> list[tuple[int, bytes]]:
        with self._lock:
            last, discarded = self._range()
            start = max(first, discarded + 1)
            end = min(last, start + count - 1)
            parts = range(start // PART, end // PART + 1)
            rows = [row for part in parts for row in self._run(READ, part, start, end, count)]
            return self._seal.check_page(rows, first, count, last, discarded)

    def last(self) -> int:
        return self._range()[0]

    def discard(self, before: int) -> None:
        with self._lock:
            last, discarded = self._range()
            new = max(discarded, min(before - 1, last))
            self._run(SET_ENDS, *self._ends(last, new))  # first: what is deleted must not be missing
            for part in range(discarded // PART, new // PART + 1):
                self._run(DELETE, part, new)

    def close(self) -> None:
        self._identity = None

    def _range(self) -> tuple[int, int]:
        """The last sequence, and the one up to which records were discarded."""
        ends = self._run(ENDS).one()
        known, discarded = (0, 0) if ends is None else self._seal.range(*ends)
        last, part = discarded, known // PART
        # A writer that was killed did not note its last group, which may be in the next partitions.
        while (top := self._run(TOP, part).one()) is not None or part == known // PART:
            last, part = max(last, 0 if top is None else top[0]), part + 1
        if last < known:
            raise self._seal.corrupt(f"record {known} is missing; the last one is {last}")
        return last, discarded

    def _ends(self, last: int, discarded: int) -> tuple[int, int, int]:
        return last, discarded, self._seal.of_range(last, discarded)

    def _run(self, text: str, *values: Any) -> Any:
        if self._identity is None:
            raise RuntimeError("the journal is not open")
        return self._session.execute(self._prepared[text], (self._identity, *values))


def main() -> None:
    from cassandra import ConsistencyLevel
    from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile

    profile = ExecutionProfile(consistency_level=ConsistencyLevel.QUORUM)
    session = Cluster([sys.argv[1]], execution_profiles={EXEC_PROFILE_DEFAULT: profile}).connect("callboard")
    journal = CassandraJournal(session)
    last = journal.open("example").last
    journal.append(last + 1, [b"one", b"two"])
    print(journal.read(last + 1, 10))
    journal.close()


if __name__ == "__main__":
    main()
