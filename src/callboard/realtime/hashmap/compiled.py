"""A table of open addressing compiled by Numba: as :mod:`.plain`, key by key, on several threads.

What a key costs is the wait for its slot, which is in no cache. So the slots of the keys to come are fetched while one
is looked at, and changes need one pass: :func:`claim` leaves them to :func:`apply`. Tags would be another wait. Here
the key in a slot says what it has: zeros in all words that it is empty, ones that its key was erased. Of these two keys
themselves the tag of the slot is ``USED``; all other tags stay ``EMPTY``. An array may be the part of a wider one that
has keys or values.
"""

from typing import Any

import numpy as np

from callboard.realtime.base.cpu.engines import spread
from callboard.realtime.base.cpu.jit import jit, jit_inlined
from callboard.realtime.base.cpu.vectors import fetch

__all__ = ["apply", "claim", "find", "rehash"]

SEED, FIRST, SECOND = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xFF51AFD7ED558CCD), np.uint64(0xC4CEB9FE1A85EC53)
SHIFT, ONE = np.uint64(33), np.uint32(1)
ZEROS, ONES = np.uint64(0), np.uint64(0xFFFFFFFFFFFFFFFF)
AHEAD = 16
"""Keys whose slots are on their way."""
NEXT = np.uint64(AHEAD)
BLOCK = 1024
NEAR = np.uint64(2)
"""Words of a slot with a key and a value that are in one line of the cache."""
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


@jit
def slot_of_zeros(keys: Any, tag: Any) -> Any:
    """The slot of the key whose words are zeros, or -1."""
    mask = np.uint32(tag.shape[0] - 1)
    at = start(np.zeros((1, keys.shape[1]), np.uint64), 0, mask)
    for _ in range(tag.shape[0]):
        here = ZEROS
        for word in range(keys.shape[1]):
            here |= keys[at, word]
        if here == ZEROS:
            return np.int64(at) if tag[at] == -1 else np.int64(-1)
        at = (at + ONE) & mask
    return np.int64(-1)


@jit_inlined
def marks(query: Any, i: Any, w: Any) -> Any:
    """Whether the words of a key are zeros, or ones."""
    some, every = ZEROS, ONES
    for word in range(w):
        some |= query[i, word]
        every &= query[i, word]
    return (some == ZEROS) | (every == ONES)


@jit_inlined
def slot_of(query: Any, i: Any, keys: Any, tag: Any, at: Any, mask: Any, w: Any, zeros: Any) -> Any:
    """The slot at which the search for a key ends, and whether it has it; ``zeros`` is that of the key of zeros."""
    last, mark, hit = (at - ONE) & mask, marks(query, i, w), False
    while True:
        here, other = ZEROS, ZEROS
        for word in range(w):
            here |= keys[at, word]
            other |= keys[at, word] ^ query[i, word]
        if other == ZEROS and (not mark or tag[at] == -1):
            hit = True
            break
        if (here == ZEROS and np.int64(at) != zeros) or at == last:
            break
        at = (at + ONE) & mask
    return at, hit


@jit_inlined
def begun(query: Any, mask: Any, starts: Any) -> None:
    """Where the searches for keys begin; a loop with nothing else in it becomes vector code."""
    for n in range(query.shape[0]):
        starts[n] = start(query, n, mask)


@jit
def slots_in(first: Any, end: Any, query: Any, keys: Any, tag: Any, slot: Any, order: Any, words: Any) -> None:
    mask, w, step = np.uint32(tag.shape[0] - 1), len(words) or keys.shape[1], np.uint64(keys.strides[0] // 8)
    zeros, starts = slot_of_zeros(keys, tag), np.zeros(BLOCK + AHEAD, np.uint32)
    for begin in range(first, end, BLOCK):
        some = query[begin : min(begin + BLOCK, end)]
        slots, orders = slot[begin : begin + some.shape[0]], order[begin : begin + some.shape[0]]
        begun(some, mask, starts)
        for n in range(AHEAD):
            fetch(keys, np.int64(starts[n] * step))
        for n in range(np.uint64(some.shape[0])):
            fetch(keys, np.int64(starts[n + NEXT] * step))
            at, hit = slot_of(some, n, keys, tag, starts[n], mask, w, zeros)
            slots[n], orders[n] = np.int64(at) if hit else -1, begin + n


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
    step, width = np.uint64(keys.strides[0] // 8), np.uint64(values.strides[0] // values.itemsize)
    zeros, starts = slot_of_zeros(keys, tag), np.zeros(BLOCK + AHEAD, np.uint32)
    for begin in range(first, end, BLOCK):
        some = query[begin : min(begin + BLOCK, end)]
        there, its = found[begin : begin + some.shape[0]], out[begin : begin + some.shape[0]]
        begun(some, mask, starts)
        for n in range(AHEAD):
            fetch(keys, np.int64(starts[n] * step))
        for n in range(np.uint64(some.shape[0])):
            fetch(keys, np.int64(starts[n + NEXT] * step))
            if step > NEAR:
                fetch(values, np.int64(starts[n + NEXT] * width))
            at, hit = slot_of(some, n, keys, tag, starts[n], mask, w, zeros)
            there[n] = hit
            for column in range(v):
                its[n, column] = values[at, column] if hit else 0


def find(query: Any, keys: Any, tag: Any, values: Any, found: Any, out: Any) -> None:
    """The value of each key, or zeros, and whether there is one."""
    widths = known(keys.shape[1]), known(values.shape[1])
    spread(found_in, len(query), GRAIN, query, keys, tag, values, found, out, *widths)


@jit
def changed_in(
    first: Any, end: Any, query: Any, given: Any, keys: Any, tag: Any, values: Any, zeros: Any, how: Any, within: Any,
    left: Any, more: Any, words: Any, columns: Any,
) -> None:  # fmt: skip
    """Change keys, in their order, whose searches begin and end in one of these ranges of the table.

    Those that go on in the next range are marked in ``left``, and the two keys that are marks in a slot, unless the
    range is the whole table. A helper for a key would count references to its arrays.
    """
    mask, shift = np.uint32(tag.shape[0] - 1), np.uint32(within)
    inside = (ONE << shift) - ONE
    w, v = len(words) or keys.shape[1], len(columns) or values.shape[1]
    step, width = np.uint64(keys.strides[0] // 8), np.uint64(values.strides[0] // values.itemsize)
    whole, grown, lowest, parts = inside == mask, 0, np.uint32(first), np.uint32(end - first)
    items, starts = np.zeros(BLOCK, np.uint64), np.zeros(BLOCK + AHEAD, np.uint32)
    for begin in range(0, query.shape[0], BLOCK):
        some, its = query[begin : begin + BLOCK], given[begin : begin + BLOCK]
        begun(some, mask, starts)
        many = np.uint64(0)
        for n in range(np.uint64(some.shape[0])):
            at = starts[n]
            items[many], starts[many] = n, at
            many += np.uint64(np.uint32((at >> shift) - lowest) < parts)
        for n in range(AHEAD):
            fetch(keys, np.int64(starts[n] * step))
        for n in range(many):
            fetch(keys, np.int64(starts[n + NEXT] * step))
            if step > NEAR:
                fetch(values, np.int64(starts[n + NEXT] * width))
            i, at = items[n], starts[n]
            stop, mark = at if whole else ((at | inside) + ONE) & mask, marks(some, i, w)
            if mark and not whole:
                left[begin + i] = True
                continue
            while True:
                here, other = ZEROS, ZEROS
                for word in range(w):
                    here |= keys[at, word]
                    other |= keys[at, word] ^ some[i, word]
                hit = other == ZEROS and (not mark or tag[at] == -1)
                free = here == ZEROS and np.int64(at) != zeros
                if hit or free:
                    break
                at = (at + ONE) & mask
                if at == stop:
                    break
            new = free and how != 3
            if new:
                grown += 1
                for word in range(w):
                    keys[at, word] = some[i, word]
            elif hit and how == 3:
                grown -= 1
                for word in range(w):
                    keys[at, word] = ONES
            if mark and (new or (hit and how == 3)):
                tag[at] = -1 if new else 0
                zeros = slot_of_zeros(keys, tag)
            if new or (hit and how == 1):
                for column in range(v):
                    values[at, column] = its[i, column]
            elif hit and how == 2:
                for column in range(v):
                    values[at, column] += its[i, column]
            left[begin + i] = not hit and not free
    more[first] += grown


def apply(
    slots: Any, order: Any, query: Any, given: Any, keys: Any, tag: Any, values: Any, counts: Any, how: int
) -> None:
    """Change keys, in their order. ``slots`` and ``order`` are not used.

    Equal keys begin in the same range, so that they change in their order on any thread.
    """
    within = (max(len(tag) // RANGES, min(len(tag), LEAST_RANGE)) - 1).bit_length()
    ranges = len(tag) >> within
    left, more = np.zeros(len(query), bool), np.zeros(ranges, np.int64)
    table = keys, tag, values, slot_of_zeros(keys, tag), how
    widths = known(keys.shape[1]), known(values.shape[1])
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
    mask, w = np.uint32(new_tag.shape[0] - 1), keys.shape[1]
    zeros = np.int64(-1)
    for old in range(tag.shape[0]):
        mark = marks(keys, old, w)
        if mark and tag[old] != -1:
            continue
        at = start(keys, old, mask)
        while True:
            here = ZEROS
            for word in range(w):
                here |= new_keys[at, word]
            if here == ZEROS and np.int64(at) != zeros:
                break
            at = (at + ONE) & mask
        for word in range(w):
            new_keys[at, word] = keys[old, word]
        for column in range(values.shape[1]):
            new_values[at, column] = values[old, column]
        if mark:
            new_tag[at] = -1
            zeros = slot_of_zeros(new_keys, new_tag)
    counts[1] = 0
