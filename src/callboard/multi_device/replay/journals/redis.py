"""``RedisJournal``: records in a Redis server, by redis-py."""

import logging
from collections.abc import Sequence
from typing import Any

from callboard.core.errors import BackendUnavailable
from callboard.multi_device.replay.errors import JournalConflict
from callboard.multi_device.replay.journals.protocol import Recovered

__all__ = ["RedisJournal"]

_log = logging.getLogger("callboard.replay")

APPEND = """
local last = tonumber(redis.call('GET', KEYS[2]) or '0')
local first = tonumber(ARGV[1])
if first ~= last + 1 then
    return last
end
for i = 2, #ARGV, 2000 do
    redis.call('RPUSH', KEYS[1], unpack(ARGV, i, math.min(i + 1999, #ARGV)))
end
redis.call('SET', KEYS[2], string.format('%.0f', last + #ARGV - 1))
return -1
"""
READ = """
local gone = tonumber(redis.call('GET', KEYS[2]) or '0') - redis.call('LLEN', KEYS[1])
local start = math.max(0, tonumber(ARGV[1]) - 1 - gone)
return {gone + start, redis.call('LRANGE', KEYS[1], start, start + tonumber(ARGV[2]) - 1)}
"""
DISCARD = """
local last = tonumber(redis.call('GET', KEYS[2]) or '0')
local length = redis.call('LLEN', KEYS[1])
local count = tonumber(ARGV[1]) - 1 - (last - length)
if count > 0 then
    redis.call('LTRIM', KEYS[1], math.min(count, length), -1)
end
return 0
"""


class RedisJournal:
    """Keeps any number of identities, each in a list and a counter under keys with a prefix.

    A group of records is one call of a script, which runs atomically. Durability depends on the server's settings: with
    ``appendonly yes`` and ``appendfsync always`` a group is on its disk when it counts as written; with ``everysec`` a
    server that loses power may lose the last second. Opening logs which setting applies, and with ``durable=True``
    refuses any but ``always``.

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
        self._keys: list[str] = []

    def open(self, identity: str) -> Recovered:
        self.close()
        client = self._redis.Redis.from_url(
            self._url, socket_timeout=self._timeout, socket_connect_timeout=self._timeout
        )
        try:
            self._check(client)
            self._append, self._read, self._discard = map(client.register_script, (APPEND, READ, DISCARD))
            self._keys = [f"{self._prefix}:{{{identity}}}:{what}" for what in ("records", "last")]
            self._client = client
            return Recovered(self.last())
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
        last = int(self._append(keys=self._keys, args=[first, *records], client=self._opened()))
        if last >= 0:
            raise JournalConflict(f"record {first} does not follow record {last}", last + 1, first)

    def read(self, first: int, count: int) -> list[tuple[int, bytes]]:
        before, found = self._read(keys=self._keys, args=[first, count], client=self._opened())
        return list(enumerate(found, before + 1))

    def last(self) -> int:
        return int(self._opened().get(self._keys[1]) or 0)

    def discard(self, before: int) -> None:
        self._discard(keys=self._keys, args=[before], client=self._opened())

    def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def _opened(self) -> Any:
        if self._client is None:
            raise self._redis.ConnectionError("the journal is not open")
        return self._client
