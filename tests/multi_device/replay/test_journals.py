"""All journals pass the conformance suite; PostgreSQL and Redis are run for real."""

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import servers

import callboard as cb
from callboard.testing.journals import JournalTests

Make = Callable[[], Any]


@pytest.fixture(scope="module")
def postgres_server() -> Iterator[str]:
    # Not in pytest's folder: another account has to be able to enter it, and a socket's path to be short.
    with tempfile.TemporaryDirectory(prefix="pg") as folder, servers.postgres(Path(folder)) as conninfo:
        yield conninfo


@pytest.fixture(scope="module")
def redis_server() -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="redis") as folder, servers.redis(Path(folder)) as url:
        yield url


class TestMemoryJournal(JournalTests):
    durable = False

    @pytest.fixture
    def make(self) -> Make:
        return cb.MemoryJournal


class TestFileJournal(JournalTests):
    @pytest.fixture(params=[1, 1 << 20])
    def make(self, tmp_path: Path, request: pytest.FixtureRequest) -> Make:
        return lambda: cb.FileJournal(tmp_path / "journal", segment_bytes=request.param)


class TestSqliteJournal(JournalTests):
    @pytest.fixture
    def make(self, tmp_path: Path) -> Make:
        return lambda: cb.SqliteJournal(tmp_path / "journal.db")


class TestPostgresJournal(JournalTests):
    @pytest.fixture
    def make(self, postgres_server: str) -> Make:
        import psycopg

        with psycopg.connect(postgres_server, autocommit=True) as connection:
            connection.execute("DROP TABLE IF EXISTS callboard_journal, callboard_journal_ends")
        return lambda: cb.PostgresJournal(postgres_server)


class TestRedisJournal(JournalTests):
    @pytest.fixture
    def make(self, redis_server: str) -> Make:
        import redis

        with redis.Redis.from_url(redis_server) as client:
            client.flushall()
        return lambda: cb.RedisJournal(redis_server, durable=True)
