"""``GpuHashMapActor``: a hash map on a device."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from callboard.core.ref.handle import GpuRef
from callboard.device.client.handle import Device
from callboard.realtime.base.asking import Commanded
from callboard.realtime.base.checks import count
from callboard.realtime.base.commands import Commands
from callboard.realtime.base.cpu.recycled import Recycled
from callboard.realtime.base.history import Command, Kept
from callboard.realtime.base.live import Live
from callboard.realtime.hashmap import kernels, messages
from callboard.realtime.hashmap.answers import Found, HashMapFull, HashMapStats
from callboard.realtime.hashmap.changes import changed, located, searched, wiped
from callboard.realtime.hashmap.config import MOST_LOAD, MOST_SLOTS, HashMapConfig, slots_for
from callboard.realtime.hashmap.keys import KEYS, Words, among, firsts, keys_of, values_of, words_of
from callboard.realtime.hashmap.plain import ADD, ASSIGN, ERASE, KEEP
from callboard.realtime.hashmap.rule import Table

__all__ = ["GpuHashMapActor"]


class GpuHashMapActor(Commanded):
    """A hash map of typed keys and values of one dtype and shape, on a device. Its methods take batches.

    ::

        async with cb.GpuHashMapActor(gpu, key="i8", value="f4", shape=(3,)) as positions:
            await positions.insert_or_assign([7, 8], [(0, 0, 0), (1, 2, 3)])
            values, found = await positions.find([8, 9])  # found: [True, False]

    Calls run in their order. The same calls give the same contents on each device. After changes of
    ``snapshot_every`` keys, the table is copied to the host. When the context is lost, the last copy is put into the
    next one, and the changes since then are repeated; callers wait.

    Args:
        device: Open.
        key: Dtype of keys: u4, u8, i4, i8, f4 or f8; or an int: keys are this number of bytes.
        value: Dtype of values: a number or bool.
        shape: Of a value.
        capacity: Keys for which there is room to begin with.
        grow: Whether a table that is full is replaced by a larger one.
        snapshot_every: Changes of keys between two copies to the host.

    Class attributes:
        Insert, Lookup, Clear, HashMapStatsOf: The messages that :meth:`ask` takes.

    Raises:
        TypeError, ValueError: An argument does not fit.
    """

    Insert: ClassVar = messages.Insert
    Lookup: ClassVar = messages.Lookup
    Clear: ClassVar = messages.Clear
    HashMapStatsOf: ClassVar = messages.HashMapStatsOf

    def __init__(
        self,
        device: Device,
        *,
        key: Any = "u8",
        value: Any = "f4",
        shape: tuple[int, ...] = (),
        capacity: int = 1024,
        grow: bool = True,
        snapshot_every: int = 1 << 20,
    ) -> None:
        super().__init__(device)
        kind: Any = count("key", key, most=4096) if isinstance(key, int) else np.dtype(key).str[1:]
        if isinstance(kind, str) and kind not in KEYS:
            raise ValueError(f"key is {key!r:.80}; use {', '.join(KEYS)}, or the number of bytes of a key")
        dtype = np.dtype(value)
        if dtype.kind not in "biufc" or dtype.itemsize > 16 or not dtype.isnative:
            raise ValueError(f"value is {value!r:.80}; use a dtype of numbers of at most 8 bytes, or bool")
        extents = tuple(count(f"shape[{n}]", extent) for n, extent in enumerate(shape))
        room = count("capacity", capacity, most=int(MOST_SLOTS * MOST_LOAD))
        self._config = HashMapConfig(key=kind, value=dtype.str[1:], shape=extents, capacity=room, grow=bool(grow))
        self._rule = Table(joined=device.backend == "cpu")
        kept = Kept(0, 0.0, self._config, self._rule.state(self._config))
        self._commands = Commands(device, self._rule, kept, count("snapshot_every", snapshot_every))
        self._turn = asyncio.Lock()
        self._copies = Recycled()
        self._slots, self._size, self._erased = slots_for(room), 0, 0
        self._sure = True  # that these are what the table has

    # -- changes -------------------------------------------------------------------------------------------------------

    async def insert(self, keys: Any, values: Any) -> int:
        """Give keys that are new their values, and return how many they are; the others keep theirs.

        Of a key that is twice in the batch, the first counts. See :meth:`insert_or_assign` for arguments and errors.
        """
        return await self._inserted(keys, values, KEEP)

    async def insert_or_assign(self, keys: Any, values: Any) -> int:
        """Give all keys these values, and return how many are new. Of a key that is twice here, the last counts.

        Args:
            keys: ``[n]``, numbers of the dtype of keys, to which floats are not rounded; keys of bytes: u1
                ``[n, bytes]``, or a list of bytes.
            values: ``[n, *shape]``, or one for all; floats are rounded, if they stay finite.

        Raises:
            HashMapFull: The map does not grow, and keys have no room; all others are in it.
            ShapeError, TypeError, ValueError: They do not fit the map; nothing is changed.
        """
        return await self._inserted(keys, values, ASSIGN)

    async def insert_and_add(self, keys: Any, values: Any) -> int:
        """Add to the values of keys, and return how many are new; those begin at zero.

        A key that is several times in the batch gets the sum, added in the order of the batch. Integers wrap around.
        See :meth:`insert_or_assign` for arguments and errors.
        """
        dtype = np.dtype(self._config.value)
        if dtype.kind == "b" or dtype.str[1:] == "f2":
            raise TypeError(f"values of {dtype} cannot be added; make the map with another dtype, such as f4")
        return await self._inserted(keys, values, ADD)

    async def erase(self, keys: Any) -> int:
        """Remove keys, and return how many there were."""
        words = words_of(keys, self._config, self._copies.copy)
        async with self._turn:
            await self._counted()
            return -await self._change(words, self._nothing(), ERASE, 0) if len(words) else 0

    async def clear(self) -> None:
        """Remove all keys; the table stays as large as it is."""
        async with self._turn:
            await self._counted()
            last = await self._run(wiped, 1)
            self._commands.known(self._rule.empty(self._config, self._slots), last)

    # -- queries -------------------------------------------------------------------------------------------------------

    async def find(self, keys: Any, default: Any = None) -> Found:
        """The values of keys, and which of them are in the map.

        Args:
            keys: See :meth:`insert_or_assign`.
            default: The value of those that are not; None: zeros.
        """
        words = words_of(keys, self._config, self._copies.copy)
        instead = None if default is None else values_of(default, 1, self._config)
        async with self._turn:
            found, values = await self._found(words)
        if instead is not None:
            values[~found] = instead
        dtype = np.dtype(self._config.value)
        return Found(values.view(dtype).reshape(len(words), *self._config.shape), found)

    async def find_gpu(self, keys: GpuRef) -> Found:
        """As :meth:`find`, for keys in an array of the device; the answers stay there, ``found`` as u8.

        Args:
            keys: Of 8 bytes, ``[n]``; keys of ``8 * k`` bytes: u8 ``[n, 8 * k]``.
        """
        size = self._config.key if isinstance(self._config.key, int) else int(self._config.key[1])
        if size % 8 or self._config.key == "f8":
            raise TypeError(
                f"keys of this map are {self._config.key}; on a device are u8, i8, or a multiple of 8 bytes"
            )
        wanted = "u8" if isinstance(self._config.key, int) else f"{self._config.key[0]}64"
        given: Any = keys
        if not isinstance(given, GpuRef) or keys.dtype.name != wanted or keys.shape[1:] != (size,) * (wanted == "u8"):
            raise TypeError(f"keys is {keys!r:.80}; pass an array of {wanted} on the device, or call find()")
        words = keys.reinterpret("u64").reshape(-1, self._config.words)

        async def run(live: Live[HashMapConfig]) -> Found:
            a: Any = live.arrays
            found, values = kernels.find(words, a["keys"], a["tag"], a["values"])
            return Found(values.reinterpret(np.dtype(self._config.value)).reshape(-1, *self._config.shape), found)

        async with self._turn:
            answer: Found = (await self._commands.run(lambda: Command(run, lasting=False))).value
            return answer

    async def contains(self, keys: Any) -> NDArray[np.bool_]:
        """Which keys are in the map, bool ``[n]``."""
        words = words_of(keys, self._config, self._copies.copy)
        async with self._turn:
            return await self._contained(words)

    async def retrieve_all(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """All keys, ascending, and their values."""
        async with self._turn:
            kept = await self._commands.copy()
        words, stored = self._rule.contents(self._config, kept.state)
        keys = keys_of(words, self._config)
        order = np.argsort(keys) if keys.ndim == 1 else np.lexsort(keys.T[::-1])
        values = stored[order].view(np.dtype(self._config.value))
        return keys[order], values.reshape(len(words), *self._config.shape)

    async def stats(self) -> HashMapStats:
        """Figures after all calls before."""
        async with self._turn:
            await self._counted()
            room = int(self._slots * MOST_LOAD) if self._config.grow else self._config.capacity
            load = (self._size + self._erased) / self._slots
            losses, lost = self._commands.losses, self._commands.lost
            return HashMapStats(self._size, room, self._slots, self._erased, load, losses, lost)

    # -- messages ------------------------------------------------------------------------------------------------------

    @messages.Insert.handles
    async def _on_insert(self, m: messages.Insert) -> int:
        calls = {"assign": self.insert_or_assign, "keep": self.insert, "add": self.insert_and_add}
        if m.how not in calls:
            raise ValueError(f"how is {m.how!r:.80}; use {', '.join(calls)}")
        return await calls[m.how](m.keys, m.values)

    @messages.Lookup.handles
    async def _on_lookup(self, m: messages.Lookup) -> Found:
        return await self.find(m.keys)

    @messages.Clear.handles
    async def _on_clear(self, m: messages.Clear) -> None:
        await self.clear()

    @messages.HashMapStatsOf.handles
    async def _on_stats(self, m: messages.HashMapStatsOf) -> HashMapStats:
        return await self.stats()

    # -- how -----------------------------------------------------------------------------------------------------------

    async def _inserted(self, keys: Any, values: Any, how: int) -> int:
        words = words_of(keys, self._config, self._copies.copy)
        given = values_of(values, len(words), self._config, self._copies.copy)
        if not len(words):
            return 0
        async with self._turn:
            await self._counted()
            most = int(self._slots * MOST_LOAD) if self._config.grow else self._config.capacity
            if self._size + self._erased + len(words) <= min(most, int(self._slots * MOST_LOAD)):
                return await self._change(words, given, how, 0)
            new = np.flatnonzero(~await self._contained(words))
            first = np.sort(new[firsts(words[new])])  # of each new key
            room = len(first)
            if not self._config.grow:
                room = min(room, self._config.capacity - self._size)
            elif slots_for(self._size + room) > MOST_SLOTS:
                room = min(room, int(MOST_SLOTS * MOST_LOAD) - self._size)
            left = words[first[room:]]
            if len(left):
                stays = ~among(words, left)
                words, given = words[stays], given[stays]
            slots = max(self._slots, slots_for(self._size + room))
            full = self._size + self._erased + room > int(self._slots * MOST_LOAD)
            added = await self._change(words, given, how, slots if full else 0) if len(words) else 0
        if not len(left):
            return added
        without = keys_of(left, self._config)
        named = without[:5].tolist() if without.ndim == 1 else [key.tobytes() for key in without[:5]]
        names = ", ".join(str(key) for key in named) + ", ..." * (len(without) > 5)
        raise HashMapFull(
            f"the map has {self._size} keys, and no room for {len(without)} of this batch: {names}; erase keys, or "
            "make it with a larger capacity or grow=True",
            without,
        )

    async def _change(self, words: Words, given: NDArray[Any], how: int, slots: int) -> int:
        """Change keys, in a new table if it says how many slots; returns by how many the map has grown."""
        before = self._size
        await self._run(partial(changed, words, given, how, slots), len(words))
        self._slots = slots or self._slots
        return self._size - before

    async def _run(self, run: Callable[[Live[HashMapConfig]], Awaitable[Any]], changes: int) -> Command:
        """A command that gives the counts; without changes, it only reads them."""
        self._sure = False
        done = await self._commands.run(lambda: Command(run, changes, lasting=changes > 0))
        self._size, self._erased = (int(number) for number in done.value)
        self._sure = True
        return done

    async def _counted(self) -> None:
        """After a call that was cancelled, or failed: learn what the table has."""
        if self._sure:
            return

        def run(live: Live[HashMapConfig]) -> Awaitable[Any]:
            self._slots = live.arrays["tag"].shape[0]
            return live.arrays["counts"].get()

        await self._run(run, 0)

    async def _found(self, words: Words) -> tuple[NDArray[np.bool_], NDArray[Any]]:
        if not len(words):
            return np.zeros(0, bool), self._nothing()[:0]
        found, values = (await self._commands.run(lambda: Command(partial(searched, words), lasting=False))).value
        return found.view(bool), values

    async def _contained(self, words: Words) -> NDArray[np.bool_]:
        if not len(words):
            return np.zeros(0, bool)
        reader = Command(partial(located, words), lasting=False)
        return np.asarray((await self._commands.run(lambda: reader)).value) >= 0

    def _nothing(self) -> NDArray[Any]:
        dtype, width = self._config.stored
        return np.zeros((1, width), dtype)
