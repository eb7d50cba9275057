"""A table of open addressing compiled by Numba: as :mod:`.plain`, key by key."""

from typing import Any

import numpy as np

from callboard.realtime.base.engines import jit

__all__ = ["apply", "claim", "find", "rehash"]

SEED, FIRST, SECOND = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xFF51AFD7ED558CCD), np.uint64(0xC4CEB9FE1A85EC53)
SHIFT = np.uint64(33)


@jit
def start(query: Any, i: Any, slots: Any) -> Any:
    mixed = SEED
    for word in range(query.shape[1]):
        mixed ^= query[i, word]
        mixed ^= mixed >> SHIFT
        mixed *= FIRST
        mixed ^= mixed >> SHIFT
        mixed *= SECOND
        mixed ^= mixed >> SHIFT
    return np.int64(mixed & np.uint64(slots - 1))


@jit
def same(a: Any, i: Any, b: Any, j: Any) -> Any:
    equal = True
    for word in range(a.shape[1]):
        equal = equal and a[i, word] == b[j, word]
    return equal


@jit
def slot_of(query: Any, i: Any, keys: Any, tag: Any) -> Any:
    """The slot of a key, or ``-1 -`` the empty one that ends the search."""
    slots = tag.shape[0]
    at = start(query, i, slots)
    for _ in range(slots):
        now = tag[at]
        if now == 0:
            return -1 - at
        if (now == -1 and same(keys, at, query, i)) or (now > 0 and same(query, now - 1, query, i)):
            return at
        at = (at + 1) & (slots - 1)
    return np.int64(-1 - slots)


@jit
def claim(query: Any, keys: Any, tag: Any, slot: Any, order: Any, claiming: Any) -> None:
    """The slot of each key; of one that has none -1, or one that is claimed for it."""
    for i in range(query.shape[0]):
        order[i] = i
        at = slot_of(query, i, keys, tag)
        if claiming != 0 and at < 0 and -1 - at < tag.shape[0]:
            at = -1 - at
            tag[at] = i + 1
        slot[i] = max(at, -1)


@jit
def apply(
    slots: Any, order: Any, query: Any, given: Any, keys: Any, tag: Any, values: Any, counts: Any, how: Any
) -> None:
    """Change the slots that were found."""
    for k in range(slots.shape[0]):
        at, i = slots[k], order[k]
        if at < 0:
            continue
        if how == 3:
            if tag[at] == -1:
                tag[at] = -2
                counts[0] -= 1
                counts[1] += 1
            continue
        new = tag[at] > 0
        if new:
            tag[at] = -1
            counts[0] += 1
            for word in range(query.shape[1]):
                keys[at, word] = query[i, word]
        if new or how == 1:
            for column in range(values.shape[1]):
                values[at, column] = given[i, column]
        elif how == 2:
            for column in range(values.shape[1]):
                values[at, column] += given[i, column]


@jit
def find(query: Any, keys: Any, tag: Any, values: Any, found: Any, out: Any) -> None:
    """The value of each key, or zeros, and whether there is one."""
    for i in range(query.shape[0]):
        at = slot_of(query, i, keys, tag)
        found[i] = at >= 0
        for column in range(values.shape[1]):
            out[i, column] = values[at, column] if at >= 0 else 0


@jit
def rehash(
    keys: Any, tag: Any, values: Any, new_keys: Any, new_tag: Any, new_values: Any, counts: Any
) -> None:  # fmt: skip
    """Put all keys into an empty table."""
    slots = new_tag.shape[0]
    for old in range(tag.shape[0]):
        if tag[old] != -1:
            continue
        at = start(keys, old, slots)
        while new_tag[at] != 0:
            at = (at + 1) & (slots - 1)
        new_tag[at] = -1
        for word in range(keys.shape[1]):
            new_keys[at, word] = keys[old, word]
        for column in range(values.shape[1]):
            new_values[at, column] = values[old, column]
    counts[1] = 0
