"""A table of open addressing with NumPy.

A slot's ``tag`` says what it has: ``EMPTY``, ``USED``, ``ERASED``, or from 1 on the key of that number, counted from 1,
in the batch that is being added. A key is in the first slot from its hash on that has it; a slot that is empty ends the
search, one that is erased does not, so that no key is in two slots.
"""

from typing import Any

import numpy as np

__all__ = ["ADD", "ASSIGN", "EMPTY", "ERASE", "ERASED", "KEEP", "LOOK", "USED", "apply", "claim", "find", "rehash"]

EMPTY, USED, ERASED = 0, -1, -2
KEEP, ASSIGN, ADD, ERASE, LOOK = 0, 1, 2, 3, 4
SEED = np.uint64(0x9E3779B97F4A7C15)


def starts(query: Any, slots: int) -> Any:
    """Where the search for each key begins."""
    mixed = np.full(len(query), SEED, "u8")
    for word in query.T:
        mixed ^= word
        for factor in (np.uint64(0xFF51AFD7ED558CCD), np.uint64(0xC4CEB9FE1A85EC53)):
            mixed ^= mixed >> np.uint64(33)
            mixed *= factor
        mixed ^= mixed >> np.uint64(33)
    return (mixed & np.uint64(slots - 1)).astype("i8")


def claim(query: Any, keys: Any, tag: Any, slot: Any, order: Any, how: int) -> None:
    """The slot of each key; of one that has none -1, or if ``how`` adds keys one that is claimed for it."""
    slots = len(tag)
    at, left = starts(query, slots), np.arange(len(query))
    slot[...], order[...] = -1, left
    for _ in range(slots):
        if how < ERASE:
            free = left[tag[at[left]] == EMPTY]
            tag[at[free]] = free + 1  # of several, one stays
        now = tag[at[left]]
        has = (now == USED) & (keys[at[left]] == query[left]).all(1)
        has |= (now > 0) & (query[np.maximum(now, 1) - 1] == query[left]).all(1)
        slot[left[has]] = at[left[has]]
        left = left[~has & (now != EMPTY)]
        if not len(left):
            return
        at[left] = (at[left] + 1) & (slots - 1)


def apply(
    slots: Any, order: Any, query: Any, given: Any, keys: Any, tag: Any, values: Any, counts: Any, how: int
) -> None:
    """Change the slots that were found: ``slots[k]`` is that of item ``order[k]``."""
    order = order[slots >= 0]
    slots = slots[slots >= 0]
    sort = np.argsort(slots, kind="stable")
    slots, order = slots[sort], order[sort]
    first = np.flatnonzero(np.diff(slots, prepend=-1))
    last = np.append(first[1:], len(slots)) - 1
    where = slots[first]
    if how == ERASE:
        tag[where] = ERASED
        counts[...] += np.array([-len(where), len(where)], "i4")
        return
    new = tag[where] > 0
    keys[where[new]], tag[where[new]] = query[order[first[new]]], USED
    counts[0] += new.sum()
    if how == KEEP:
        values[where[new]] = given[order[first[new]]]
    elif how == ASSIGN:
        values[where] = given[order[last]]
    else:
        values[where[new]] = 0
        np.add.at(values, slots, given[order])


def find(query: Any, keys: Any, tag: Any, values: Any, found: Any, out: Any) -> None:
    """The value of each key, or zeros, and whether there is one."""
    slot = np.zeros(len(query), "i4")
    claim(query, keys, tag, slot, slot.copy(), LOOK)
    found[...] = slot >= 0
    out[...] = values[slot]
    out[slot < 0] = 0


def rehash(
    keys: Any, tag: Any, values: Any, new_keys: Any, new_tag: Any, new_values: Any, counts: Any
) -> None:  # fmt: skip
    """Put all keys into an empty table."""
    used = np.flatnonzero(tag == USED)
    query = keys[used]
    slot = np.zeros(len(used), "i4")
    claim(query, new_keys, new_tag, slot, slot.copy(), KEEP)
    new_keys[slot], new_tag[slot], new_values[slot] = query, USED, values[used]
    counts[1] = 0
