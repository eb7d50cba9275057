"""All journals pass the conformance suite; PostgreSQL and Redis are run for real."""

import contextlib
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import servers
import stores

import callboard as cb
from callboard.multi_device.replay.entries import Gap, decode
from callboard.multi_device.replay.writer import JournalWriter
from callboard.testing.journals import FolderStore, JournalTests

Make = Callable[[], Any]
LIMIT = 60.0


@pytest.fixture(scope="module")
def postgres_server() -> Iterator[servers.Server]:
    # Not in pytest's folder: another account has to be able to enter it, and a socket's path to be short.
    with tempfile.TemporaryDirectory(prefix="pg") as folder, servers.postgres(Path(folder)) as server:
        yield server


@pytest.fixture(scope="module")
def redis_server() -> Iterator[servers.Server]:
    with tempfile.TemporaryDirectory(prefix="redis") as folder, servers.redis(Path(folder)) as server:
        yield server


class TestMemoryJournal(JournalTests):
    durable = False

    @pytest.fixture
    def make(self) -> Make:
        return cb.MemoryJournal


class TestFileJournal(JournalTests):
    @pytest.fixture(params=[1, 1 << 20])
    def make(self, tmp_path: Path, request: pytest.FixtureRequest) -> Make:
        return lambda: cb.FileJournal(tmp_path / "journal", segment_bytes=request.param)

    @pytest.fixture
    def store(self, tmp_path: Path) -> FolderStore:
        return FolderStore(tmp_path / "journal")


class TestSqliteJournal(JournalTests):
    @pytest.fixture
    def make(self, tmp_path: Path) -> Make:
        (tmp_path / "journal").mkdir()
        return lambda: cb.SqliteJournal(tmp_path / "journal" / "journal.db")

    @pytest.fixture
    def store(self, tmp_path: Path) -> FolderStore:
        return FolderStore(tmp_path / "journal")


class TestPostgresJournal(JournalTests):
    flips = 60

    @pytest.fixture
    def store(self, make: Make, postgres_server: servers.Server) -> Iterator[stores.PostgresStore]:
        with contextlib.closing(stores.PostgresStore(postgres_server.address)) as store:
            yield store

    @pytest.fixture
    def make(self, postgres_server: servers.Server) -> Make:
        import psycopg

        with psycopg.connect(postgres_server.address, autocommit=True) as connection:
            connection.execute("DROP TABLE IF EXISTS callboard_journal, callboard_journal_ends")
        return lambda: cb.PostgresJournal(postgres_server.address)


class TestRedisJournal(JournalTests):
    @pytest.fixture
    def store(self, make: Make, redis_server: servers.Server) -> Iterator[stores.RedisStore]:
        with contextlib.closing(stores.RedisStore(redis_server.address)) as store:
            yield store

    @pytest.fixture
    def make(self, redis_server: servers.Server) -> Make:
        import redis

        with redis.Redis.from_url(redis_server.address) as client:
            client.flushall()
        return lambda: cb.RedisJournal(redis_server.address, durable=True)


@pytest.mark.few(1)
@pytest.mark.parametrize("kind", ["postgres", "redis"])
def test_a_server_that_is_killed_keeps_what_was_durable_and_is_used_again(
    kind: str, request: pytest.FixtureRequest
) -> None:
    server: servers.Server = request.getfixturevalue(f"{kind}_server")
    make = cb.PostgresJournal if kind == "postgres" else cb.RedisJournal
    failed, again = threading.Event(), threading.Event()
    writer = JournalWriter(
        make(server.address),
        "killed",
        on_failure="degrade",
        linger=0.0,
        retry=0.01,
        told=lambda failure: (again if failure is None else failed).set(),
    )
    writer.start()
    for n in range(100):
        writer.put(b"%d" % n)
    writer.flush()
    server.kill()
    writer.put(b"lost")
    assert failed.wait(LIMIT)
    strict = JournalWriter(make(server.address), "other", linger=0.0)
    with pytest.raises(Exception, match=r"(?i)connect"):  # of any class: it is the client's
        strict.start()
    server.start()
    assert again.wait(LIMIT)
    for n in range(100, 110):
        writer.put(b"%d" % n)
    writer.close()
    journal = make(server.address)
    assert journal.open("killed").last == 111
    records = [record for _, record in journal.read(1, 1000)]
    journal.close()
    gap = decode(records.pop(100))
    assert records == [b"%d" % n for n in range(110)]
    assert isinstance(gap, Gap)
    assert gap.lost == 1


@pytest.mark.few(1)
@pytest.mark.parametrize("kind", ["postgres", "redis"])
def test_a_server_that_is_gone_refuses_what_is_to_be_recorded(kind: str, request: pytest.FixtureRequest) -> None:
    server: servers.Server = request.getfixturevalue(f"{kind}_server")
    make = cb.PostgresJournal if kind == "postgres" else cb.RedisJournal
    writer = JournalWriter(make(server.address), "strict", linger=0.0)
    writer.start()
    writer.put(b"durable")
    writer.flush()
    server.kill()
    writer.put(b"lost")
    with pytest.raises(cb.JournalFailed, match="the journal strict failed"):
        writer.flush()
    with pytest.raises(cb.JournalFailed):
        writer.put(b"refused")
    server.start()
    with pytest.raises(cb.JournalFailed):
        writer.close()
    journal = make(server.address)
    journal.open("strict")
    assert journal.read(1, 10) == [(1, b"durable")]
    journal.close()
