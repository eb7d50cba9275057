"""The stored bytes of journals that are servers, as the conformance suite damages them."""

from collections.abc import Mapping
from struct import Struct
from typing import Any

ENDS = Struct("<qqq")
HEAD = Struct("<qq")


class PostgresStore:
    """Rows as their numbers and their record."""

    def __init__(self, address: str) -> None:
        import psycopg

        self._connection: Any = psycopg.connect(address, autocommit=True)

    def load(self) -> dict[str, bytes]:
        rows = self._connection.execute("SELECT identity, sequence, crc, record FROM callboard_journal ORDER BY 1, 2")
        found = {f"{row[0]} {row[1]}": HEAD.pack(row[1], row[2]) + row[3] for row in rows.fetchall()}
        ends = self._connection.execute("SELECT identity, last, discarded, crc FROM callboard_journal_ends")
        return {**found, **{row[0]: ENDS.pack(*row[1:]) for row in ends.fetchall()}}

    def save(self, contents: Mapping[str, bytes]) -> None:
        with self._connection.transaction():
            self._connection.execute("TRUNCATE callboard_journal, callboard_journal_ends")
            for name, content in contents.items():
                identity, _, sequence = name.partition(" ")
                if sequence:
                    row = (identity, *HEAD.unpack_from(content), content[HEAD.size :])
                    statement = "callboard_journal (identity, sequence, crc, record) VALUES (%s, %s, %s, %s)"
                else:
                    row = (identity, *ENDS.unpack(content[: ENDS.size]))
                    statement = "callboard_journal_ends (identity, last, discarded, crc) VALUES (%s, %s, %s, %s)"
                self._connection.execute(f"INSERT INTO {statement} ON CONFLICT DO NOTHING", row)

    def close(self) -> None:
        self._connection.close()


class RedisStore:
    """Elements of lists, and texts."""

    def __init__(self, address: str) -> None:
        import redis

        self._client: Any = redis.Redis.from_url(address)

    def load(self) -> dict[str, bytes]:
        found: dict[str, bytes] = {}
        for key in sorted(self._client.keys()):
            if self._client.type(key) == b"list":
                found.update((f"{key.decode()} {n}", value) for n, value in enumerate(self._client.lrange(key, 0, -1)))
            else:
                found[key.decode()] = self._client.get(key)
        return found

    def save(self, contents: Mapping[str, bytes]) -> None:
        with self._client.pipeline() as pipeline:
            pipeline.flushall()
            for name, content in contents.items():
                key, _, element = name.partition(" ")
                pipeline.rpush(key, content) if element else pipeline.set(key, content)
            pipeline.execute()

    def close(self) -> None:
        self._client.close()
