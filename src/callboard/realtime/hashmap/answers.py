"""What a hash map answers."""

from typing import Any, NamedTuple

from callboard.core.errors import AccelError

__all__ = ["Found", "HashMapFull", "HashMapStats"]


class HashMapFull(AccelError):
    """A map that does not grow has no room for some keys of a batch; the others are in it.

    Attributes:
        keys: The keys that were not inserted, each once, in the order of the batch.
    """

    def __init__(self, message: str, keys: Any = ()) -> None:
        super().__init__(message)
        self.keys = keys


class Found(NamedTuple):
    """The answer to a search.

    Attributes:
        values: ``[n, *shape]``; of keys that are not in the map, zeros or the caller's ``default``.
        found: bool ``[n]``: which keys are in the map.
    """

    values: Any
    found: Any


class HashMapStats(NamedTuple):
    """Figures of a map.

    Attributes:
        size: Keys.
        capacity: Keys for which there is room; more, when the map grows.
        slots: Of the table.
        erased: Slots that an erased key has left; they are reused when room is needed.
        load: Part of the slots that is used or erased.
        losses: How often the table was lost with a context, and brought back.
        lost_frames: Changes of keys that were repeated because of that.
    """

    size: int
    capacity: int
    slots: int
    erased: int
    load: float
    losses: int
    lost_frames: int
