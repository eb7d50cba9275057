"""Which entry leaves a full cache: the least recently used one (LRU), or one that is asked for seldom (TinyLFU)."""

from collections import OrderedDict
from typing import Protocol

from callboard.agents.cache.keys import Key

__all__ = ["Lru", "Order", "TinyLfu"]


class Order(Protocol):
    """The order in which entries leave."""

    def seen(self, key: Key) -> None:
        """Note a request, whether or not there is an entry."""

    def touch(self, key: Key) -> None:
        """Note a hit."""

    def add(self, key: Key) -> None:
        """Note a new entry."""

    def evict(self) -> Key:
        """Forget an entry, and return its key. There is one."""
        ...

    def discard(self, key: Key) -> None:
        """Forget an entry that is there."""


class Lru:
    """Least recently used first."""

    def __init__(self) -> None:
        self._keys: OrderedDict[Key, None] = OrderedDict()

    def seen(self, key: Key) -> None:
        pass

    def touch(self, key: Key) -> None:
        self._keys.move_to_end(key)

    def add(self, key: Key) -> None:
        self._keys[key] = None

    def evict(self) -> Key:
        return self._keys.popitem(last=False)[0]

    def discard(self, key: Key) -> None:
        del self._keys[key]


class Sketch:
    """Approximate numbers of requests, of a key among the last ones: four counters each, halved from time to time."""

    SIZE = 1 << 16

    def __init__(self) -> None:
        self._counters = bytearray(self.SIZE)
        self._added = 0

    @classmethod
    def _places(cls, key: Key) -> tuple[int, int, int, int]:
        bits = hash(key)
        other = bits >> 32 | 1  # an odd step: double hashing
        return tuple((bits + n * other) % cls.SIZE for n in range(4))  # type: ignore[return-value]

    def add(self, key: Key) -> None:
        counters = self._counters
        for place in self._places(key):
            if counters[place] < 15:
                counters[place] += 1
        self._added += 1
        if self._added >= 4 * self.SIZE:
            self._added //= 2
            self._counters = bytearray(counters.translate(_HALVES))

    def count(self, key: Key) -> int:
        return min(self._counters[place] for place in self._places(key))


_HALVES = bytes(n // 2 for n in range(256))


class TinyLfu:
    """A new entry stays if it was asked for more often than the one that would leave for it.

    New entries come into a window of one percent, least recently used first. What leaves the window is compared with
    the least recently used entry of the rest. A scan over many texts then does not empty the cache.
    """

    def __init__(self) -> None:
        self._window: OrderedDict[Key, None] = OrderedDict()
        self._rest: OrderedDict[Key, None] = OrderedDict()
        self._sketch = Sketch()

    def seen(self, key: Key) -> None:
        self._sketch.add(key)

    def touch(self, key: Key) -> None:
        (self._window if key in self._window else self._rest).move_to_end(key)

    def add(self, key: Key) -> None:
        self._window[key] = None

    def evict(self) -> Key:
        window, rest = self._window, self._rest
        share = max(1, (len(window) + len(rest)) // 100)
        while len(window) > share + 1:  # the cache was not full when they came
            rest[window.popitem(last=False)[0]] = None
        if rest and len(window) <= share:
            return rest.popitem(last=False)[0]
        newer, _ = window.popitem(last=False)
        if not rest:
            return newer
        older = next(iter(rest))
        if self._sketch.count(newer) <= self._sketch.count(older):
            return newer
        del rest[older]
        rest[newer] = None
        return older

    def discard(self, key: Key) -> None:
        del (self._window if key in self._window else self._rest)[key]
