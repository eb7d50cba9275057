"""The entries of a cache: rows of one array, bounded by bytes, with an age."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from callboard.agents.cache.keys import Key
from callboard.agents.cache.order import Order

__all__ = ["OVERHEAD", "Store"]

OVERHEAD = 256
"""Bytes of an entry beside its row and its key: in the dictionaries."""

Rows = NDArray[Any]


class Store:
    """Vectors by key. A batch of them is one gather.

    Args:
        dim: Length of a vector.
        dtype: Of the rows.
        max_bytes: Bound of the rows, keys and :data:`OVERHEAD` of all entries; room for one entry at least.
        order: Which entry leaves first.
    """

    def __init__(self, dim: int, dtype: "np.dtype[Any]", max_bytes: int, order: Order) -> None:
        self.dim = dim
        self.bytes = self.evicted = self.expired = 0
        self._max_bytes, self._order = max_bytes, order
        self._row_bytes = dim * dtype.itemsize + OVERHEAD
        self._most = max(1, max_bytes // self._row_bytes)
        self._rows: Rows = np.empty((min(64, self._most), dim), dtype)
        self._entries: dict[Key, tuple[int, float]] = {}  # row, and when it is too old
        self._free: list[int] = []

    def __len__(self) -> int:
        return len(self._entries)

    def find(self, key: Key, now: float) -> int | None:
        """The row of an entry that is not too old; valid until the next :meth:`put`."""
        self._order.seen(key)
        entry = self._entries.get(key)
        if entry is None:
            return None
        if entry[1] <= now:
            self.expired += 1
            self.remove(key)
            return None
        self._order.touch(key)
        return entry[0]

    def rows(self, numbers: list[int]) -> Rows:
        """A copy of these rows."""
        return self._rows[numbers]

    def row(self, number: int) -> Rows:
        """A copy of this row."""
        row: Rows = self._rows[number].copy()
        return row

    def put(self, key: Key, vector: Rows, expires: float) -> None:
        """Keep a vector; entries leave until there is room. A vector that is larger than the bound is not kept."""
        size = self._row_bytes + len(key)
        if size > self._max_bytes:
            return
        if key in self._entries:
            self.remove(key)
        while self.bytes + size > self._max_bytes:
            self.evicted += 1
            self._drop(self._order.evict())
        row = self._free.pop() if self._free else len(self._entries)
        if row >= len(self._rows):
            more: Rows = np.empty((min(2 * len(self._rows), self._most), self.dim), self._rows.dtype)
            more[: len(self._rows)] = self._rows
            self._rows = more
        self._rows[row] = vector
        self._entries[key] = row, expires
        self._order.add(key)
        self.bytes += size

    def remove(self, key: Key) -> bool:
        """Forget an entry; whether it was there."""
        if key not in self._entries:
            return False
        self._order.discard(key)
        self._drop(key)
        return True

    def _drop(self, key: Key) -> None:
        row, _ = self._entries.pop(key)
        self._free.append(row)
        self.bytes -= self._row_bytes + len(key)

    def all_keys(self) -> list[Key]:
        """The keys of all entries, also of those that are too old."""
        return list(self._entries)
