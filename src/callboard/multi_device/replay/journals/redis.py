"""``RedisJournal``: records in a Redis server, by redis-py."""

import contextlib
import logging
import threading
from collections.abc import Iterator, Sequence
from typing import Any

from callboard.core.errors import BackendUnavailable
from callboard.multi_device.replay.errors import JournalConflict
from callboard.multi_device.replay.journals.protocol import Recovered
from callboard.multi_device.replay.journals.seals import OLDER, Seal

__all__ = ["RedisJournal"]

_log = logging.getLogger("callboard.replay")

APPEND = """
local last = redis.call('GET', KEYS[2]) or ''
if last ~= ARGV[1] then
    return last
end
for i = 3, #ARGV, 2000 do
    redis.call('RPUSH', KEYS[1], unpack(ARGV, i, math.min(i + 1999, #ARGV)))
end
redis.call('SET', KEYS[2], ARGV[2])
return false
"""
READ = """
local discarded = redis.call('GET', KEYS[3]) or ''
local start = math.max(0, tonumber(ARGV[1]) - 1 - (tonumber(string.match(discarded, '^%d+')) or 0))
local found = redis.call('LRANGE', KEYS[1], start, start + tonumber(ARGV[2]) - 1)
return {redis.call('GET', KEYS[2]) or '', discarded, redis.call('LLEN', KEYS[1]), found}
"""
DISCARD = """
if (redis.call('GET', KEYS[3]) or '') ~= ARGV[1] then
    return 0
end
redis.call('LTRIM', KEYS[1], ARGV[3], -1)
redis.call('SET', KEYS[3], ARGV[2])
return 1
"""
CRC = 4
"""Bytes of the checksum in front of each record."""


class RedisJournal:
    """Keeps any number of identities, each in a list and two counters under keys with a prefix.

    Records and counters have checksums: damage, and keys that are missing, raise :class:`JournalCorrupt` when they are
    read. A group of records is one call of a script, which runs atomically. Durability depends on the server's
    settings: with ``appendonly yes`` and ``appendfsync always`` a group is on its disk when it counts as written; with
    ``everysec`` a server that loses power may lose the last second. Opening logs which setting applies, and with
    ``durable=True`` refuses any but ``always``.

    Args:
        url: URL for ``redis.Redis.from_url``.
        prefix: Prefix of the keys. Keys of one identity have a common hash tag, so a cluster keeps them together.
        timeout: Seconds to wait for an answer.
        durable: Refuse a server that does not synchronise each write.

    Raises:
        BackendUnavailable: There is no redis-py: ``pip install "callboard[journal-redis]"``.
    """

    def __init__(self, url: str, *, prefix: str = "callboard", timeout: float = 10.0, durable: bool = False) -> None:
        try:
            import redis
        except ImportError as e:
            raise BackendUnavailable('RedisJournal needs redis-py: pip install "callboard[journal-redis]"') from e
        self._redis: Any = redis
        self._url = url
        self._prefix = prefix
        self._timeout = timeout
        self._durable = durable
        self._client: Any = None
        self._append: Any = None
        self._read: Any = None
        self._discard: Any = None
        self._identity = ""
        self._keys: list[str] = []
        self._seal = Seal("", "")
        self._discarding = threading.Lock()

    def open(self, identity: str) -> Recovered:
        if self._client is not None and identity != self._identity:
            raise JournalConflict(f"this journal object records {self._identity}; make another one for {identity}")
        self.close()
        client = self._redis.Redis.from_url(
            self._url, socket_timeout=self._timeout, socket_connect_timeout=self._timeout
        )
        try:
            self._check(client)
            self._append, self._read, self._discard = map(client.register_script, (APPEND, READ, DISCARD))
            self._keys = [f"{self._prefix}:{{{identity}}}:{what}" for what in ("records", "last", "discarded")]
            self._identity, self._seal = identity, Seal(f"key {self._keys[0]} of the Redis server", identity)
            self._client = client
            return Recovered(self._state(1, 1)[0])
        except BaseException:  # a cancel, too
            self._client = None
            client.close()
            raise

    def _check(self, client: Any) -> None:
        try:
            kept = [client.config_get(name).get(name) for name in ("appendonly", "appendfsync")]
        except self._redis.ResponseError as e:  # not every account may ask
            kept = [f"unknown ({e})"]
        if kept == ["yes", "always"]:
            return
        if self._durable:
            raise ValueError(
                f"appendonly and appendfsync of the Redis server are {kept}; durable=True needs yes, always"
            )
        _log.warning("appendonly and appendfsync of the Redis server are %s: it may lose the last records", kept)

    def append(self, first: int, records: Sequence[bytes]) -> None:
        expected, after = self._counter("last", first - 1), self._counter("last", first + len(records) - 1)
        of = self._seal.of
        sealed = [of(n, record).to_bytes(CRC, "little") + record for n, record in enumerate(records, first)]
        with self._errors():
            found = self._append(keys=self._keys, args=[expected, after, *sealed], client=self._opened())
        if found is not None:
            last = self._number("last", found)
            raise JournalConflict(f"record {first} does not follow record {last}", last + 1, first)

    def read(self, first: int, count: int) -> list[tuple[int, bytes]]:
        last, discarded, found = self._state(first, count)
        rows = [
            (n, element[CRC:], int.from_bytes(element[:CRC], "little") if len(element) >= CRC else None)
            for n, element in enumerate(found, max(first, discarded + 1))
        ]
        return self._seal.check_page(rows, first, count, last, discarded)

    def last(self) -> int:
        with self._errors():
            return self._number("last", self._opened().get(self._keys[1]) or b"")

    def discard(self, before: int) -> None:
        with self._discarding:
            last, discarded, _ = self._state(1, 1)
            new = min(before - 1, last)
            if new <= discarded:
                return
            counters = self._counter("discarded", discarded), self._counter("discarded", new)
            with self._errors():
                if not self._discard(keys=self._keys, args=[*counters, new - discarded], client=self._opened()):
                    raise JournalConflict(f"another program discards records of {self._identity}")

    def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def _state(self, first: int, count: int) -> tuple[int, int, list[bytes]]:
        """Return the last sequence, the one up to which records were discarded, and records from ``first`` on."""
        with self._errors():
            last, discarded, length, found = self._read(keys=self._keys, args=[first, count], client=self._opened())
        numbers = self._number("last", last), self._number("discarded", discarded)
        if length != numbers[0] - numbers[1]:
            raise self._seal.corrupt(f"there are {length} records, and {numbers[1] + 1} to {numbers[0]} must be there")
        return *numbers, found

    def _counter(self, name: str, value: int) -> bytes:
        """Return the text of a counter and its checksum; one of 0 is not there."""
        return b"%d %08x" % (value, self._seal.of(value, name.encode())) if value else b""

    def _number(self, name: str, text: bytes) -> int:
        if text.isdigit():
            raise self._seal.corrupt(OLDER)
        number = text.partition(b" ")[0]
        value = int(number) if number.isdigit() and len(number) < 19 else 0
        if self._counter(name, value) != text:
            raise self._seal.corrupt(f"the counter {name} is {text!r}, which does not match its checksum")
        return value

    def _opened(self) -> Any:
        if self._client is None:
            raise self._redis.ConnectionError("the journal is not open")
        return self._client

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        """Translate the server's error that a key is of another kind, which is damage."""
        try:
            yield
        except self._redis.ResponseError as e:
            if "WRONGTYPE" in str(e):
                raise self._seal.corrupt(f"a key holds something else: {e}") from e
            raise
