"""MTGP32 in cuRAND's orders: 192 twisters side by side, 64 in the legacy order, each with parameters of its own.

Saito and Matsumoto, "Variants of Mersenne Twister suitable for graphic processors", ACM Trans. Math. Softw. 39 (2013),
with the exponent 11213: a word of a twister follows from four among the 351 before it, none of them one of the latest
256, so 256 are made at once. A row of the stream holds 256 words of every twister, one twister after the other.
"""

import copy
import importlib.resources
from functools import cache
from typing import Any

import numpy as np

__all__ = ["LEGACY_TWISTERS", "Mtgp32"]

Array = np.ndarray[Any, Any]

TWISTERS = 192
LEGACY_TWISTERS = 64
STATE = 351
AT_ONCE = 256
STAYING = STATE - AT_ONCE
MASK = np.uint32(0xFFF80000)
"""The bits of the oldest word that are part of a state: 351 words have 19 more than 11213."""


class Mtgp32:
    """A stream, at its beginning.

    Args:
        seed: Seed of 64 bits.
        twisters: So many side by side.
    """

    def __init__(self, seed: int, twisters: int = TWISTERS) -> None:
        parameters = _parameters()[:, :twisters]
        place, self._left, self._right = (row[:, None] for row in parameters[:3])
        self._twist, self._temper = _table(parameters[3:7]), _table(parameters[7:])
        self._state = _seeded(seed, parameters[5] ^ parameters[6] << np.uint32(16))
        number = np.arange(twisters)[:, None]
        self._tables_at = 16 * number
        self._picked_at = STATE * number + place + np.arange(-1, AT_ONCE)
        # A step writes to existing arrays: an allocation takes longer than the step.
        self._new, self._row, self._other = np.empty((3, twisters, AT_ONCE), np.uint32)
        self._picked = np.empty((twisters, AT_ONCE + 1), np.uint32)
        self._entries = np.empty((twisters, AT_ONCE), np.intp)
        self._used = 0
        self._step()
        self._read()

    @property
    def nbytes(self) -> int:
        """Size of the state and of the memory for the next step."""
        return sum(array.nbytes for array in vars(self).values() if isinstance(array, np.ndarray))

    def copy(self) -> "Mtgp32":
        """A stream at the same place."""
        new = copy.copy(self)
        for name in ("_state", "_new", "_row", "_other", "_picked", "_entries"):
            setattr(new, name, getattr(self, name).copy())
        return new

    def discard(self, count: int) -> None:
        """Pass over ``count`` words."""
        steps, self._used = divmod(self._used + count, self._row.size)
        for _ in range(steps):
            self._step()
        if steps:
            self._read()

    def draw(self, count: int) -> Array:
        """The next words, ``[count]`` of uint32."""
        words, row, done = np.empty(count, np.uint32), self._row.reshape(-1), 0
        while done < count:
            part = row[self._used : self._used + count - done]
            words[done : done + part.size] = part
            done += part.size
            self.discard(part.size)
        return words

    def _step(self) -> None:
        """Make the next row, without its tempering."""
        state, new, other = self._state, self._new, self._other
        np.take(state.reshape(-1), self._picked_at, out=self._picked, mode="clip")  # by "raise" through a copy
        np.bitwise_and(state[:, :AT_ONCE], MASK, out=new)
        new ^= state[:, 1 : AT_ONCE + 1]
        new ^= np.left_shift(new, self._left, out=other)
        new ^= np.right_shift(self._picked[:, 1:], self._right, out=other)
        new ^= self._entries_of(self._twist, new)
        state[:, :STAYING] = state[:, AT_ONCE:]
        state[:, STAYING:] = new

    def _read(self) -> None:
        """Temper the row, each word with the one before that which was picked for it."""
        row, before = self._row, self._picked[:, :-1]
        np.right_shift(before, np.uint32(16), out=row)
        row ^= before
        row ^= np.right_shift(row, np.uint32(8), out=self._other)
        np.bitwise_xor(self._new, self._entries_of(self._temper, row), out=row)

    def _entries_of(self, tables: Array, words: Array) -> Array:
        """Return the table entries selected by the last four bits of the words; valid until the next call."""
        np.bitwise_and(words, np.uint32(15), out=self._entries)
        np.add(self._entries, self._tables_at, out=self._entries)
        return np.take(tables, self._entries, out=self._other, mode="clip")


def _seeded(seed: int, hidden: Array) -> Array:
    """The states of twisters with the hidden seeds ``[twisters]``: ``[twisters, 351]`` of uint32."""
    low = np.uint32((seed ^ seed >> 32) & 0xFFFFFFFF)
    filling = hidden + (hidden >> np.uint32(16))
    filling += filling >> np.uint32(8)
    words = np.empty((STATE, hidden.size), np.uint32)
    words[:] = (filling & np.uint32(0xFF)) * np.uint32(0x01010101)
    words[0] = low + np.arange(1, hidden.size + 1, dtype=np.uint32)
    words[1] = hidden
    for i in range(1, STATE):
        before = words[i - 1]
        words[i] ^= (before ^ before >> np.uint32(30)) * np.uint32(1812433253) + np.uint32(i)
    return words.T.copy()


def _table(entries: Array) -> Array:
    """Tables for four bits, from the entries of one bit: ``[4, twisters]`` to ``[16 * twisters]``."""
    table = np.zeros((entries.shape[1], 16), np.uint32)
    for bit in range(4):
        table[:, 1 << bit : 2 << bit] = table[:, : 1 << bit] ^ entries[bit, :, None]
    return table.reshape(-1)


@cache
def _parameters() -> Array:
    """``[11, 192]`` of uint32: the place picked up, the shifts to the left and right, the entries of both tables."""
    source = importlib.resources.files("callboard.backends.cpu") / "data" / "mtgp32.npy"
    with source.open("rb") as file:
        found: Array = np.load(file).astype(np.uint32)
    return found
