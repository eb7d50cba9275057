"""A table of open addressing compiled by Numba: as :mod:`.plain`, key by key."""

from typing import Any

import numpy as np

from callboard.realtime.base.engines import jit, jit_inlined, spread

__all__ = ["apply", "claim", "find", "rehash"]

SEED, FIRST, SECOND = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xFF51AFD7ED558CCD), np.uint64(0xC4CEB9FE1A85EC53)
SHIFT, ONE, PART = np.uint64(33), np.uint32(1), np.uint32(13)
GRAIN = 10_000
"""Keys of a thread at least."""


@jit_inlined
def start(query: Any, i: Any, mask: Any) -> Any:
    """Where the search for a key begins."""
    mixed = SEED
    for word in range(query.shape[1]):
        mixed ^= query[i, word]
        mixed ^= mixed >> SHIFT
        mixed *= FIRST
        mixed ^= mixed >> SHIFT
        mixed *= SECOND
        mixed ^= mixed >> SHIFT
    return np.uint32(mixed) & mask


@jit_inlined
def same(a: Any, i: Any, b: Any, j: Any) -> Any:
    if a[i, 0] != b[j, 0]:
        return False
    for word in range(1, a.shape[1]):  # noqa: SIM110 -- a generator is not compiled
        if a[i, word] != b[j, word]:
            return False
    return True


@jit
def grouped(first: Any, end: Any, query: Any, mask: Any, words: Any, order: Any, starts: Any) -> None:
    """Keys whose slots are near each other, one after the other; equal keys stay in their order.

    A part of the table stays in the cache then, which makes each search about three times as fast.
    """
    shift = PART
    while np.int64(mask >> shift) * 32 > end - first:
        shift += ONE
    ends = np.zeros(np.int64(mask >> shift) + 2, np.int64)
    places = np.empty(end - first, np.uint32)
    for i in range(first, end):
        at = start(query, i, mask)
        places[i - first] = at
        ends[np.int64(at >> shift) + 1] += 1
    for n in range(1, ends.shape[0]):
        ends[n] += ends[n - 1]
    for i in range(first, end):
        part = places[i - first] >> shift
        k = ends[part]
        ends[part] = k + 1
        order[k], starts[k] = i, places[i - first]
        for word in range(query.shape[1]):
            words[k, word] = query[i, word]


@jit
def claim(query: Any, keys: Any, tag: Any, slot: Any, order: Any, claiming: Any) -> None:
    """The slot of each key; of one that has none -1, or one that is claimed for it."""
    mask, many = np.uint32(tag.shape[0] - 1), query.shape[0]
    words, items, starts = np.empty_like(query), np.empty(many, np.int32), np.empty(many, np.uint32)
    grouped(0, many, query, mask, words, items, starts)
    for k in range(many):
        at, i = starts[k], items[k]
        last = (at - ONE) & mask
        found = -1
        while True:
            now = tag[at]
            if now == 0:
                if claiming != 0:
                    tag[at] = i + 1
                    found = at
                break
            if (same(keys, at, words, k) if now < 0 else same(query, now - 1, words, k)) and now != -2:
                found = at
                break
            if at == last:
                break
            at = (at + ONE) & mask
        if claiming != 0:
            slot[k], order[k] = found, i
        else:
            slot[i], order[i] = found, i


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
def found_in(
    first: Any, end: Any, query: Any, keys: Any, tag: Any, values: Any, found: Any, out: Any
) -> None:  # fmt: skip
    mask, many = np.uint32(tag.shape[0] - 1), end - first
    words, items, starts = (
        np.empty((many, query.shape[1]), np.uint64),
        np.empty(many, np.int32),
        np.empty(many, np.uint32),
    )
    grouped(first, end, query, mask, words, items, starts)
    for k in range(many):
        at, i = starts[k], items[k]
        last = (at - ONE) & mask
        hit = False
        while True:
            now = tag[at]
            if now == -1 and same(keys, at, words, k):
                hit = True
                break
            if now == 0 or at == last:
                break
            at = (at + ONE) & mask
        found[i] = hit
        if hit:
            for column in range(values.shape[1]):
                out[i, column] = values[at, column]
        else:
            for column in range(values.shape[1]):
                out[i, column] = 0


def find(query: Any, keys: Any, tag: Any, values: Any, found: Any, out: Any) -> None:
    """The value of each key, or zeros, and whether there is one."""
    spread(found_in, len(query), GRAIN, query, keys, tag, values, found, out)


@jit
def rehash(
    keys: Any, tag: Any, values: Any, new_keys: Any, new_tag: Any, new_values: Any, counts: Any
) -> None:  # fmt: skip
    """Put all keys into an empty table."""
    mask = np.uint32(new_tag.shape[0] - 1)
    for old in range(tag.shape[0]):
        if tag[old] != -1:
            continue
        at = start(keys, old, mask)
        while new_tag[at] != 0:
            at = (at + ONE) & mask
        new_tag[at] = -1
        for word in range(keys.shape[1]):
            new_keys[at, word] = keys[old, word]
        for column in range(values.shape[1]):
            new_values[at, column] = values[old, column]
    counts[1] = 0
