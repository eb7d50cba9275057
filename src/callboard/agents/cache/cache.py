"""``EmbeddingCache``: vectors of texts, computed once and kept within a bound of bytes."""

import asyncio
import math
from collections.abc import Sequence
from functools import partial
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from callboard.actors.clock import Clock, LoopClock
from callboard.agents.cache.disk import EmbeddingFile, OnDisk
from callboard.agents.cache.embedding import Embed, Embedding, EmbedExecutor
from callboard.agents.cache.flight import Flight
from callboard.agents.cache.keys import Key, KeyKind, Keys
from callboard.agents.cache.order import Lru, TinyLfu
from callboard.agents.cache.stats import EmbeddingCacheStats
from callboard.agents.cache.store import OVERHEAD, Store
from callboard.agents.checks import matrix, positive
from callboard.core.dtype import DTypeLike, as_dtype
from callboard.patterns.contract.atcall import at_the_call

__all__ = ["EmbeddingCache"]

Rows = NDArray[Any]


class EmbeddingCache:
    """Vectors of texts: each is computed once, by one call for all that a request misses.

    Requests that miss a text while its vector is computed wait for the same call. Errors are given to those that wait
    and are not kept. A caller that is cancelled leaves the call to the others; without others, the call is cancelled.
    A cache belongs to one event loop.

    ::

        cache = cb.EmbeddingCache(model.encode, model="minilm", revision="2021-08")
        vector = await cache.get("What is a generation?")
        vectors = await cache.get_many(passages, prefix="passage: ")

    Args:
        embed: Takes a list of texts, each with its prefix in front, and returns an array with a row for each; or a
            coroutine function that does, a resident actor's method, or a function that returns a ref.
        model: Name of the model. It is a part of each key, as are ``revision``, ``dtype`` and the prefix.
        revision: Its revision.
        dim: Length of a vector; None: that of the first one that is computed or put.
        dtype: Of the vectors that are kept and returned: f16, f32 or f64.
        max_bytes: Bound of all rows, keys and their bookkeeping (256 bytes each).
        ttl: Seconds that a vector is kept; None for no limit.
        policy: Which entry leaves a full cache: ``"lru"``, the least recently used one, or ``"tinylfu"``, which also
            counts requests, so that one pass over many texts does not displace those that are asked for often.
        keys: ``"digest"`` keeps 128 bits of each key, ``"full"`` the text.
        max_batch: Texts in one call of ``embed``; None for no limit.
        executor: ``"loop"`` calls ``embed`` on the event loop, ``"thread"`` on a thread; ``"auto"`` on the loop if it
            is a coroutine function or a resident actor's method.
        disk: An :class:`EmbeddingFile`, which is searched for what is not in memory, and keeps what is computed for
            later runs.
        clock: Tells the time; for tests.

    Attributes:
        model, revision: As given.

    Raises:
        ValueError: A setting is out of its range.
    """

    def __init__(
        self,
        embed: Embed,
        *,
        model: str = "",
        revision: str = "",
        dim: int | None = None,
        dtype: DTypeLike = "f32",
        max_bytes: int = 256 << 20,
        ttl: float | None = None,
        policy: Literal["lru", "tinylfu"] = "lru",
        keys: KeyKind = "digest",
        max_batch: int | None = None,
        executor: EmbedExecutor = "auto",
        disk: EmbeddingFile | None = None,
        clock: Clock | None = None,
    ) -> None:
        kept = as_dtype(dtype)
        if kept.name not in ("f16", "f32", "f64"):
            raise ValueError(f"dtype is {kept.name}; it must be f16, f32 or f64")
        if ttl is not None and not ttl > 0:
            raise ValueError(f"ttl is {ttl}; it must be positive, or None for no limit")
        if policy not in ("lru", "tinylfu"):
            raise ValueError(f"policy is {policy!r}; it must be 'lru' or 'tinylfu'")
        self.model, self.revision = model, revision
        self._dtype = kept.np
        self._max_bytes = positive("max_bytes", max_bytes)
        self._max_batch = None if max_batch is None else positive("max_batch", max_batch)
        self._ttl = math.inf if ttl is None else ttl
        self._clock = clock or LoopClock()
        self._keys = Keys(keys, model, revision, kept.name)
        self._embedding = Embedding(embed, executor, self._dtype, None)
        self._make_store = partial(self._new_store, Lru if policy == "lru" else TinyLfu)
        self._store: Store | None = None
        self._flights: dict[Key, Flight] = {}
        self._disk = disk
        self._left: dict[Key, float] = {}  # seconds that vectors of the file may still be kept
        self._hits = self._misses = self._coalesced = self._calls = self._failed = self._disk_hits = 0
        if dim is not None:
            self._has_dim(positive("dim", dim))

    async def get(self, text: str, *, prefix: str = "") -> Rows:
        """The vector of a text, as an array of the caller's own.

        Args:
            text: The text.
            prefix: Put in front of it for the model, such as ``"query: "``.
        """
        row = self.peek(text, prefix=prefix)
        if row is not None:
            return row
        key = self._keys.of(text, prefix)
        (found,) = self._missing({key: prefix + text}, 1)
        return (await found.rows())[key].copy()

    def peek(self, text: str, *, prefix: str = "") -> Rows | None:
        """The vector of a text if it is kept, else None: nothing is computed."""
        if self._store is None:
            return None
        row = self._store.find(self._keys.of(text, prefix), self._clock.time())
        if row is None:
            return None
        self._hits += 1
        return self._store.row(row)

    @at_the_call
    async def get_many(self, texts: Sequence[str], *, prefix: str = "") -> Rows:
        """The vectors of texts, ``[len(texts), dim]``; one call computes all that are missing.

        Args:
            texts: The texts, in any number; the same text may occur twice.
            prefix: Put in front of each of them for the model.
        """
        if isinstance(texts, str):
            raise TypeError(f"texts is the str {texts[:40]!r}; pass a list of texts, or call get()")
        keys = [self._keys.of(text, prefix) for text in texts]
        now, store = self._clock.time(), self._store
        numbers = [None if store is None else store.find(key, now) for key in keys]
        missed = [n for n, number in enumerate(numbers) if number is None]
        self._hits += len(keys) - len(missed)
        if store is not None and not missed:
            return store.rows([number for number in numbers if number is not None])
        found = np.empty((len(keys), 0 if store is None else store.dim), self._dtype)
        if store is not None:  # copied before the wait: rows change when entries leave
            had = [n for n, number in enumerate(numbers) if number is not None]
            found[had] = store.rows([number for number in numbers if number is not None])
        if not missed:
            return found
        flights = self._missing({keys[n]: prefix + texts[n] for n in missed}, len(missed))
        waiting = [flight.rows() for flight in flights]
        rows: dict[Key, Rows] = {}
        try:
            for part in await asyncio.gather(*waiting):
                rows |= part
        finally:
            for each in waiting:  # if one has failed, this caller waits for none of them
                each.cancel()
        if store is None:
            found = np.empty((len(keys), len(rows[keys[missed[0]]])), self._dtype)
        found[missed] = [rows[keys[n]] for n in missed]
        return found

    def put(self, text: str, vector: Any, *, prefix: str = "") -> None:
        """Keep a vector that was computed elsewhere; it replaces one that is kept, and one that is being computed.

        Raises:
            ShapeError: It has another length than the vectors of this cache.
            ValueError: It has a number that is not finite.
        """
        row = matrix("vector", vector, columns=self.dim, rows=1).astype(self._dtype)
        if not np.isfinite(row).all():
            raise ValueError(f"vector holds numbers too large for {self._dtype}; use dtype='f32'")
        key = self._keys.of(text, prefix)
        self._flights.pop(key, None)
        self._has_dim(row.shape[1]).put(key, row[0], self._clock.time() + self._ttl)
        if self._disk is not None:
            self._disk.write(self._keys.scope, {key: row[0]}, self._ttl)

    def invalidate(self, text: str, *, prefix: str = "") -> bool:
        """Forget the vector of a text; whether there was one in memory. One that is computed now is not kept either."""
        key = self._keys.of(text, prefix)
        computing = self._flights.pop(key, None) is not None
        if self._disk is not None:
            self._disk.forget(self._keys.scope, key)
        return (self._store is not None and self._store.remove(key)) or computing

    def clear(self) -> None:
        """Forget all vectors, also those of this model on disk, and do not keep those that are being computed now."""
        self._flights.clear()
        if self._disk is not None:
            self._disk.forget(self._keys.scope, None)
        if self._store is not None:
            for key in self._store.all_keys():
                self._store.remove(key)

    @property
    def dim(self) -> int | None:
        """Length of a vector; None before it is known."""
        return self._embedding.dim

    def stats(self) -> EmbeddingCacheStats:
        """Figures since the cache was made."""
        store = self._store
        return EmbeddingCacheStats(
            hits=self._hits,
            misses=self._misses,
            coalesced=self._coalesced,
            calls=self._calls,
            failed=self._failed,
            evicted=store.evicted if store else 0,
            expired=store.expired if store else 0,
            entries=len(store) if store else 0,
            bytes=store.bytes if store else 0,
            max_bytes=self._max_bytes,
            disk_hits=self._disk_hits,
        )

    def __len__(self) -> int:
        return 0 if self._store is None else len(self._store)

    def __repr__(self) -> str:
        taken = 0 if self._store is None else self._store.bytes
        return f"<EmbeddingCache of {len(self)} vectors, {taken} of {self._max_bytes} bytes>"

    # -- misses --------------------------------------------------------------------------------------------------------

    def _missing(self, texts: dict[Key, str], asked: int) -> list[Flight]:
        """The flights that compute these texts: those under way, and new ones for the rest."""
        under_way = {key: flight for key in texts if (flight := self._flights.get(key)) is not None}
        new = [(key, text) for key, text in texts.items() if key not in under_way]
        self._misses += len(new)
        self._coalesced += asked - len(new)
        flights = list(dict.fromkeys(under_way.values()))
        step = self._max_batch or max(1, len(new))
        for start in range(0, len(new), step):
            part = dict(new[start : start + step])
            flight = Flight(part, self._compute, self._ended)
            self._flights |= dict.fromkeys(part, flight)
            flights.append(flight)
        return flights

    async def _compute(self, texts: dict[Key, str]) -> Sequence[Rows] | Rows:
        if self._disk is None:
            return await self._called(list(texts.values()))
        asked = self._disk.read(self._keys.scope, list(texts), self._dtype)
        found: dict[Key, OnDisk] = await asyncio.wrap_future(asked)
        dim = self.dim or next((len(row) for row, _ in found.values()), 0)
        rows = {key: row for key, (row, _) in found.items() if len(row) == dim}
        self._left |= {key: found[key][1] for key in rows}
        self._disk_hits += len(rows)
        self._misses -= len(rows)
        missing = {key: text for key, text in texts.items() if key not in rows}
        if missing:
            rows |= dict(zip(missing, await self._called(list(missing.values())), strict=True))
        return [rows[key] for key in texts]

    async def _called(self, texts: list[str]) -> Rows:
        self._calls += 1
        return await self._embedding(texts)

    def _ended(self, flight: Flight, rows: dict[Key, Rows] | None) -> None:
        kept = [key for key in flight.keys if self._flights.get(key) is flight]  # not: invalidated, or put meanwhile
        left = {key: self._left.pop(key) for key in flight.keys if key in self._left}
        for key in kept:
            del self._flights[key]
        if rows is None:
            self._failed += bool(kept)
            return
        for key in kept:
            row = rows[key]
            self._has_dim(len(row)).put(key, row, self._clock.time() + min(self._ttl, left.get(key, self._ttl)))
        if self._disk is not None and (new := {key: rows[key] for key in kept if key not in left}):
            self._disk.write(self._keys.scope, new, self._ttl)

    def _has_dim(self, dim: int) -> Store:
        if self._store is None:
            self._store = self._make_store(dim)
            self._embedding.dim = dim
        return self._store

    def _new_store(self, order: Any, dim: int) -> Store:
        least = dim * self._dtype.itemsize + OVERHEAD + 16
        if self._max_bytes < least:
            raise ValueError(f"max_bytes is {self._max_bytes}; one vector of {dim} {self._dtype} takes {least}")
        return Store(dim, self._dtype, self._max_bytes, order())
