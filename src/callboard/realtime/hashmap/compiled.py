"""A table of open addressing compiled by Numba: as :mod:`.plain`, key by key, on several threads.

What a key costs is the wait for its slot, which is in no cache. So the slots of the keys to come are fetched while one
is looked at, and changes need one pass: :func:`claim` leaves them to :func:`apply`.
"""

from typing import Any

import numpy as np

from callboard.realtime.base.cpu.engines import spread
from callboard.realtime.base.cpu.jit import jit, jit_inlined
from callboard.realtime.base.cpu.vectors import fetch

__all__ = ["apply", "claim", "find", "rehash"]

SEED, FIRST, SECOND = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xFF51AFD7ED558CCD), np.uint64(0xC4CEB9FE1A85EC53)
SHIFT, ONE = np.uint64(33), np.uint32(1)
AHEAD = 16
"""Keys whose slots are on their way."""
BLOCK = 1024
GRAIN = 10_000
"""Keys of a thread at least."""
RANGES = 64
"""Parts of the table that a thread has for itself while keys change; the same for any number of threads."""
LEAST_RANGE = 1 << 12


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


def known(width: int) -> tuple[int, ...]:
    """A tuple whose length says a width of few columns to the compiler; empty for a wider one."""
    return (0,) * (width if width <= 4 else 0)


@jit_inlined
def slot_of(query: Any, i: Any, keys: Any, tag: Any, at: Any, mask: Any, w: Any) -> Any:
    """The slot that has a key, or -1."""
    last = (at - ONE) & mask
    while True:
        now = tag[at]
        hit = now == -1
        for word in range(w):
            hit &= keys[at, word] == query[i, word]
        if hit:
            return np.int64(at)
        if now == 0 or at == last:
            return np.int64(-1)
        at = (at + ONE) & mask


@jit
def slots_in(first: Any, end: Any, query: Any, keys: Any, tag: Any, slot: Any, order: Any, words: Any) -> None:
    mask, w = np.uint32(tag.shape[0] - 1), len(words) or keys.shape[1]
    starts = np.empty(AHEAD, np.uint32)
    for n in range(first, end + AHEAD):
        i = n - AHEAD
        if i >= first:
            slot[i], order[i] = slot_of(query, i, keys, tag, starts[n % AHEAD], mask, w), i
        if n < end:
            at = start(query, n, mask)
            starts[n % AHEAD] = at
            fetch(tag, np.int64(at))
            fetch(keys, np.int64(at) * w)


def claim(query: Any, keys: Any, tag: Any, slot: Any, order: Any, how: int) -> None:
    """The slot of each key, or -1, if nothing changes."""
    if how == 4:
        spread(slots_in, len(query), GRAIN, query, keys, tag, slot, order, known(keys.shape[1]))


@jit
def found_in(
    first: Any, end: Any, query: Any, keys: Any, tag: Any, values: Any, found: Any, out: Any, words: Any, columns: Any
) -> None:
    mask = np.uint32(tag.shape[0] - 1)
    w, v = len(words) or keys.shape[1], len(columns) or values.shape[1]
    starts = np.empty(AHEAD, np.uint32)
    for n in range(first, end + AHEAD):
        i = n - AHEAD
        if i >= first:
            at = slot_of(query, i, keys, tag, starts[n % AHEAD], mask, w)
            found[i] = at >= 0
            for column in range(v):
                out[i, column] = values[at, column] if at >= 0 else 0
        if n < end:
            begin = start(query, n, mask)
            starts[n % AHEAD] = begin
            fetch(tag, np.int64(begin))
            fetch(keys, np.int64(begin) * w)
            fetch(values, np.int64(begin) * v)


def find(query: Any, keys: Any, tag: Any, values: Any, found: Any, out: Any) -> None:
    """The value of each key, or zeros, and whether there is one."""
    widths = known(keys.shape[1]), known(values.shape[1])
    spread(found_in, len(query), GRAIN, query, keys, tag, values, found, out, *widths)


@jit
def changed_in(
    first: Any, end: Any, query: Any, given: Any, keys: Any, tag: Any, values: Any, how: Any, within: Any, left: Any,
    more: Any, words: Any, columns: Any,
) -> None:  # fmt: skip
    """Change keys, in their order, whose searches begin and end in one of these ranges of the table.

    Those that go on in the next range are marked in ``left``. A helper for a key would count references to its arrays.
    """
    mask, shift = np.uint32(tag.shape[0] - 1), np.uint32(within)
    inside = (ONE << shift) - ONE
    w, v = len(words) or keys.shape[1], len(columns) or values.shape[1]
    items, starts = np.empty(BLOCK, np.int64), np.empty(BLOCK, np.uint32)
    for begin in range(0, query.shape[0], BLOCK):
        many = 0
        for i in range(begin, min(query.shape[0], begin + BLOCK)):
            at = start(query, i, mask)
            part = np.int64(at >> shift)
            items[many], starts[many] = i, at
            many += part >= first and part < end
        for n in range(many + AHEAD):
            if n < many:
                to = np.int64(starts[n])
                fetch(tag, to)
                fetch(keys, to * w)
                fetch(values, to * v)
            if n < AHEAD:
                continue
            i, at = items[n - AHEAD], starts[n - AHEAD]
            stop = at if inside == mask else ((at | inside) + ONE) & mask
            while True:
                now = tag[at]
                hit = now == -1
                for word in range(w):
                    hit &= keys[at, word] == query[i, word]
                if hit or now == 0:
                    break
                at = (at + ONE) & mask
                if at == stop:
                    break
            new = now == 0 and how != 3
            if new:
                tag[at] = -1
                more[first] += 1
                for word in range(w):
                    keys[at, word] = query[i, word]
            elif hit and how == 3:
                tag[at] = -2
                more[first] -= 1
            if new or (hit and how == 1):
                for column in range(v):
                    values[at, column] = given[i, column]
            elif hit and how == 2:
                for column in range(v):
                    values[at, column] += given[i, column]
            left[i] = not hit and now != 0


def apply(
    slots: Any, order: Any, query: Any, given: Any, keys: Any, tag: Any, values: Any, counts: Any, how: int
) -> None:
    """Change keys, in their order. ``slots`` and ``order`` are not used.

    Equal keys begin in the same range, so that they change in their order on any thread.
    """
    within = (max(len(tag) // RANGES, min(len(tag), LEAST_RANGE)) - 1).bit_length()
    ranges = len(tag) >> within
    left, more = np.zeros(len(query), bool), np.zeros(ranges, np.int64)
    table, widths = (keys, tag, values, how), (known(keys.shape[1]), known(values.shape[1]))
    grain = -(-ranges * GRAIN // len(query))
    spread(changed_in, ranges, grain, query, given, *table, within, left, more, *widths)
    if left.any():
        rest, its = query[left], given if how == 3 else given[left]
        changed_in(0, 1, rest, its, *table, (len(tag) - 1).bit_length(), np.zeros(len(rest), bool), more, *widths)
    counts[0] += more.sum()
    if how == 3:
        counts[1] -= more.sum()


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
