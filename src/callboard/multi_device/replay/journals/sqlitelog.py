"""What SQLite drops of a write-ahead log: it ends a log, without an error, at the first page that has changed.

SQLite's "WAL-mode File Format" describes it: a header, and pages, of which the last of a transaction is marked. No
other file of the database is read here: closing one would release the locks that SQLite has on it in this process.
"""

from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

__all__ = ["Dropped", "dropped"]

HEADER, PAGE_HEADER = 32, 24
MAGIC = 0x377F0682
"""The first word of a log whose checksums are over little-endian words; one more: over big-endian words."""

Words = np.ndarray[Any, np.dtype[np.uint32]]


class Dropped(NamedTuple):
    """The pages in a log that SQLite does not use.

    Attributes:
        transactions: How many of them end a transaction; one for all if the header of the log has changed.
        nbytes: Their bytes.
    """

    transactions: int
    nbytes: int


def dropped(log: Path) -> Dropped:
    """The pages behind the first one that does not match its checksum, except those from before a checkpoint."""
    try:
        data = log.read_bytes()
    except FileNotFoundError:
        return Dropped(0, 0)
    if len(data) <= HEADER + PAGE_HEADER:
        return Dropped(0, 0)
    magic, size = int.from_bytes(data[:4]), PAGE_HEADER + int.from_bytes(data[8:12])
    order = "<u4" if magic == MAGIC else ">u4"
    header = _sums(np.frombuffer(data, order, 6).astype(np.uint32)[None])[0]
    if magic not in (MAGIC, MAGIC + 1) or list(header) != list(np.frombuffer(data, ">u4", 2, 24)):
        return Dropped(2, len(data))
    pages = np.frombuffer(data, np.uint8, (len(data) - HEADER) // size * size, HEADER).reshape(-1, size)
    heads = pages[:, :PAGE_HEADER].copy().view(">u4").astype(np.uint32)
    words = np.hstack([pages[:, :8], pages[:, PAGE_HEADER:]]).view(order).astype(np.uint32)
    before = np.vstack([header, heads[:-1, 4:]])
    salt = np.frombuffer(data, ">u4", 2, 16).astype(np.uint32)
    used = (_sums(words, before) == heads[:, 4:]).all(1) & (heads[:, 2:4] == salt).all(1)
    valid = int(np.argmin(used)) if not used.all() else len(used)
    rest = heads[valid:]
    rest = rest[[_are_alike(found, salt) for found in rest[:, 2:4]]]
    return Dropped(int(np.count_nonzero(rest[:, 1])), len(rest) * size)


def _are_alike(one: Words, other: Words) -> bool:
    """True if two salts, which are random, differ by damage only."""
    return sum(int(word).bit_count() for word in one ^ other) <= 3


def _sums(words: Words, before: Words | None = None) -> Words:
    """SQLite's checksums of rows of words, each continued from the checksum ``before``.

    For each two words ``a, b`` it computes ``s += a + t; t += b + s``, which is linear.
    """
    weights, step = _weights(words.shape[1] // 2)
    sums = words @ weights
    return sums if before is None else sums + before @ step


@cache
def _weights(pairs: int) -> tuple[Words, Words]:
    """The weight of each word in both sums, and those of the sums before."""
    power = np.eye(2, dtype=np.uint32)
    step = np.array([[1, 1], [1, 2]], np.uint32)
    weights = np.empty((pairs, 2, 2), np.uint32)
    for n in reversed(range(pairs)):
        weights[n] = np.array([[1, 1], [0, 1]], np.uint32) @ power
        power = step @ power
    return weights.reshape(2 * pairs, 2), power
