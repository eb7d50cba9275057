"""``HashMapConfig``: what the keys and values of a hash map are, and its table to begin with."""

import msgspec
import numpy as np

__all__ = ["MOST_LOAD", "MOST_SLOTS", "HashMapConfig", "slots_for"]

MOST_LOAD = 0.7
"""Part of the slots that may be used."""
MOST_SLOTS = 1 << 30
LEAST_SLOTS = 16


def slots_for(keys: int) -> int:
    """Slots of a table for this number of keys: a power of 2."""
    slots = LEAST_SLOTS
    while int(slots * MOST_LOAD) < keys:
        slots *= 2
    return slots


class HashMapConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What follows from the arguments of a map.

    Attributes:
        key: A dtype, or the number of bytes of a key.
        value: The dtype of values, as NumPy's ``str``.
        shape: The shape of a value.
        capacity: Keys for which there is room to begin with.
        grow: There is more room when it is needed.
    """

    key: str | int
    value: str
    shape: tuple[int, ...]
    capacity: int
    grow: bool

    @property
    def words(self) -> int:
        """Words of 8 bytes of a key in the table."""
        return -(-self.key // 8) if isinstance(self.key, int) else 1

    @property
    def stored(self) -> tuple[str, int]:
        """The dtype in which values are stored, which CUDA can add where NumPy can, and how many make a value."""
        dtype = np.dtype(self.value)
        width = int(np.prod(self.shape, dtype="i8"))
        if dtype.kind == "c":
            return f"f{dtype.itemsize // 2}", 2 * width
        return ("u1" if dtype.kind == "b" else "u2" if dtype.str[1:] == "f2" else dtype.str[1:]), width
