"""``EmbeddingFile``: vectors on disk, behind those of a cache in memory: an SQLite file, bounded by bytes."""

import concurrent.futures
import logging
import os
import sqlite3
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from callboard.agents.cache.keys import Key
from callboard.agents.checks import positive

__all__ = ["EmbeddingFile", "OnDisk"]

OnDisk = tuple[NDArray[Any], float]
"""A vector, and the seconds until it is too old."""
APPLICATION, VERSION = 0x63624546, 1
LEAST = 1 << 17
"""Bytes of the smallest bound: an empty file takes some pages."""
WAIT = 5.0
"""Seconds to wait for another process that writes."""
STEP = 500
"""Keys of a statement."""
SCHEMA = """CREATE TABLE IF NOT EXISTS vectors
    (key BLOB UNIQUE, row BLOB, sum INTEGER, expires REAL, used REAL);
CREATE INDEX IF NOT EXISTS by_use ON vectors (used);"""
log = logging.getLogger("callboard.agents.cache")


class EmbeddingFile:
    """A file that keeps vectors of :class:`EmbeddingCache` for later runs. Several caches and processes may share it.

    A damaged file is put aside under the name ``….damaged``, with a warning, and begun anew; a vector whose checksum is
    wrong is computed again. What the disk refuses (it is full, or locked for long) is logged, and is no error.

    ::

        with cb.EmbeddingFile("vectors.db", max_bytes=1 << 30) as disk:
            cache = cb.EmbeddingCache(embed, model="minilm", revision="2021-08", disk=disk)

    Args:
        path: The file; its folder exists.
        max_bytes: Bound of its content; the least recently used vectors leave. A log beside it takes some MB more.

    Attributes:
        path: As given.
        damaged: Vectors whose checksum was wrong, and files that were begun anew.

    Raises:
        OSError: The file cannot be opened.
        ValueError: It is the database of another program; or ``max_bytes`` is too small.
    """

    def __init__(self, path: str | PathLike[str], *, max_bytes: int = 1 << 30) -> None:
        self.path = Path(path)
        self.damaged = 0
        if positive("max_bytes", max_bytes) < LEAST:
            raise ValueError(f"max_bytes is {max_bytes}; it must be at least {LEAST}")
        self._max_bytes = max_bytes
        try:
            self._db = self._opened()
        except sqlite3.OperationalError as e:
            raise OSError(f"{self.path} cannot be opened: {e}") from e
        except sqlite3.DatabaseError as e:
            self._begin_anew(e)
        # One thread: what is asked later is done later, so that a vector that is forgotten is not written after that.
        self._thread = concurrent.futures.ThreadPoolExecutor(1, "callboard embeddings")

    def read(self, scope: bytes, keys: Sequence[Key], dtype: "np.dtype[Any]") -> "concurrent.futures.Future[Any]":
        """The vectors that are there, a dict of :data:`OnDisk` by key; for a cache.

        Args:
            scope: Of the cache's model.
            keys: The keys.
            dtype: Of the vectors.
        """
        return self._soon(lambda: self._read(scope, keys, dtype), {})

    def write(self, scope: bytes, rows: Mapping[Key, NDArray[Any]], ttl: float) -> None:
        """Keep vectors, soon; for a cache."""
        now = time.time()
        given = [(scope + key, row.tobytes(), now + ttl, now) for key, row in rows.items()]
        self._soon(lambda: self._write(given), None)

    def forget(self, scope: bytes, key: Key | None) -> None:
        """Forget a vector, or all of a scope; for a cache."""
        where, value = ("substr(key, 1, 8)", scope) if key is None else ("key", scope + key)
        self._soon(lambda: self._db.execute(f"DELETE FROM vectors WHERE {where} = ?", (value,)), None)

    def close(self) -> None:
        """Write what is to be written, and close the file; caches go on without it."""
        self._thread.shutdown()
        self._db.close()

    def __enter__(self) -> "EmbeddingFile":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __len__(self) -> int:
        """Vectors in the file, when all that was asked for is done: it waits for that."""
        return int(self._soon(lambda: self._one("SELECT count(*) FROM vectors"), 0).result())

    def __repr__(self) -> str:
        return f"<EmbeddingFile {str(self.path)!r}>"

    def _soon(self, work: Callable[[], Any], otherwise: Any) -> "concurrent.futures.Future[Any]":
        """The result of ``work`` on the thread; ``otherwise`` if the disk refuses, or the file is closed."""
        try:
            return self._thread.submit(self._guarded, work, otherwise)
        except RuntimeError:
            closed: concurrent.futures.Future[Any] = concurrent.futures.Future()
            closed.set_result(otherwise)
            return closed

    # -- on the thread -------------------------------------------------------------------------------------------------

    def _read(self, scope: bytes, keys: Sequence[Key], dtype: "np.dtype[Any]") -> dict[Key, OnDisk]:
        now, found = time.time(), dict[Key, OnDisk]()
        wrong: list[bytes] = []
        for part in _steps([scope + key for key in keys]):
            marks = ",".join("?" * len(part))
            asked = f"SELECT key, row, sum, expires FROM vectors WHERE key IN ({marks}) AND expires > ?"
            for key, row, total, expires in self._db.execute(asked, [*part, now]):
                if zlib.crc32(row, zlib.crc32(key)) != total or len(row) % dtype.itemsize:
                    wrong.append(key)
                else:
                    found[key[len(scope) :]] = np.frombuffer(row, dtype), expires - now
            self._db.execute(f"UPDATE vectors SET used = ? WHERE key IN ({marks})", [now, *part])
        if wrong:
            self.damaged += len(wrong)
            log.warning("%s: %d vectors are damaged, and are computed again", self.path, len(wrong))
            self._db.executemany("DELETE FROM vectors WHERE key = ?", [(key,) for key in wrong])
        return found

    def _write(self, given: list[tuple[bytes, bytes, float, float]]) -> None:
        rows = [(key, row, zlib.crc32(row, zlib.crc32(key)), expires, now) for key, row, expires, now in given]
        with _Transaction(self._db):
            self._db.executemany("INSERT OR REPLACE INTO vectors VALUES (?, ?, ?, ?, ?)", rows)
            while self._bytes() > self._max_bytes and (count := self._one("SELECT count(*) FROM vectors")):
                self._db.execute("DELETE FROM vectors WHERE expires <= ?", [time.time()])
                oldest = "SELECT key FROM vectors ORDER BY used LIMIT ?"
                self._db.execute(f"DELETE FROM vectors WHERE key IN ({oldest})", [max(1, count // 16)])

    def _bytes(self) -> int:
        """Of the pages that are in use."""
        pages = self._one("PRAGMA page_count") - self._one("PRAGMA freelist_count")
        return pages * self._one("PRAGMA page_size")

    def _one(self, asked: str) -> int:
        return int(self._db.execute(asked).fetchone()[0])

    def _guarded(self, work: Callable[[], Any], otherwise: Any) -> Any:
        try:
            try:
                return work()
            except sqlite3.OperationalError:
                raise
            except sqlite3.DatabaseError as e:
                self._begin_anew(e)
        except Exception as e:  # no caller waits for a write, and no reader is to fail for it
            log.warning("%s: %r; what it was asked for was not done", self.path, e)
        return otherwise

    def _opened(self) -> sqlite3.Connection:
        db = sqlite3.connect(self.path, timeout=WAIT, isolation_level=None, check_same_thread=False)
        try:
            kind, version, entries = (
                int(db.execute(asked).fetchone()[0])
                for asked in ("PRAGMA application_id", "PRAGMA user_version", "SELECT count(*) FROM sqlite_master")
            )
            if entries and (kind, version) != (APPLICATION, VERSION):
                raise ValueError(f"{self.path} is a database of another program or version; give a file of its own")
            db.execute("PRAGMA page_size = 8192")  # a page has several vectors
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("PRAGMA synchronous = NORMAL")
            db.execute(f"PRAGMA application_id = {APPLICATION}")
            db.execute(f"PRAGMA user_version = {VERSION}")
            db.executescript(SCHEMA)
        except BaseException:  # whatever it is, there is no other reference to close it by
            db.close()
            raise
        return db

    def _begin_anew(self, error: sqlite3.DatabaseError) -> None:
        """Put the file aside, and open an empty one."""
        aside = f"{self.path}.damaged"
        log.warning("%s is damaged (%s); it is now %s, and a new file is begun", self.path, error, aside)
        self.damaged += 1
        if hasattr(self, "_db"):
            self._db.close()
        os.replace(self.path, aside)
        for end in ("-wal", "-shm"):
            Path(f"{self.path}{end}").unlink(missing_ok=True)
        self._db = self._opened()


class _Transaction:
    """All statements of a section are done, or none."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def __enter__(self) -> None:
        self._db.execute("BEGIN IMMEDIATE")

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._db.in_transaction:  # a full disk has ended it
            self._db.execute("COMMIT" if kind is None else "ROLLBACK")


def _steps(keys: list[bytes]) -> Iterator[list[bytes]]:
    for start in range(0, len(keys), STEP):
        yield keys[start : start + STEP]
