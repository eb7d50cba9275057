"""``Blame``: which requests were in flight at which losses, and which are held. No clock, no I/O."""

import math
from collections import OrderedDict, deque
from enum import IntEnum
from typing import NamedTuple

__all__ = ["KEPT", "Blame", "Loss", "Standing"]

KEPT = 8
"""Losses recorded for each key."""


class Standing(IntEnum):
    """The permission of a request to run, by the number of losses during its runs since its last success."""

    CLEAR = 0
    """With all others."""
    SUSPECT = 1
    """One loss: with all others that are clear, but with no other suspect."""
    ALONE = 2
    """Two losses or more: with no other request."""


class Loss(NamedTuple):
    """A context that was lost."""

    device: str | None
    generation: int | None
    """None: not known, and no other loss is the same."""


class _Record:
    __slots__ = ("losses", "until")

    def __init__(self) -> None:
        self.losses: deque[Loss] = deque(maxlen=KEPT)
        self.until = -math.inf


class Blame:
    """Records of the keys that were in flight at a loss. A success deletes the record of its key.

    Args:
        hold: Seconds for which a key is held once it is convicted.
        max_keys: Records at most; beyond that, the key with the oldest last loss is dropped.

    Raises:
        ValueError: One of them is not positive.
    """

    def __init__(self, hold: float, max_keys: int) -> None:
        if not 0 < hold < math.inf:
            raise ValueError(f"hold must be positive seconds, but is {hold}")
        if max_keys < 1:
            raise ValueError(f"max_keys must be at least 1, but is {max_keys}")
        self._hold = hold
        self._max = max_keys
        self._records: OrderedDict[str, _Record] = OrderedDict()

    def __len__(self) -> int:
        return len(self._records)

    def __contains__(self, key: str) -> bool:
        return key in self._records

    def standing(self, key: str) -> Standing:
        """The current permission of the request to run, if it is not held."""
        record = self._records.get(key)
        return Standing.CLEAR if record is None else Standing(min(len(record.losses), Standing.ALONE))

    def lost(self, key: str, loss: Loss) -> bool:
        """The request was in flight at this loss; returns False if that was known."""
        record = self._records.get(key)
        if record is None:
            record = self._records[key] = _Record()
        elif loss.generation is not None and loss in record.losses:
            return False
        record.losses.append(loss)
        self._records.move_to_end(key)
        if len(self._records) > self._max:
            self._records.popitem(last=False)
        return True

    def losses(self, key: str) -> tuple[Loss, ...]:
        """The losses that the request was in flight at, oldest first; the last :data:`KEPT`."""
        record = self._records.get(key)
        return () if record is None else tuple(record.losses)

    def convict(self, key: str, now: float) -> None:
        """The request has lost a context alone: it is held from now on. After that, it runs alone."""
        self._records[key].until = now + self._hold

    def until(self, key: str) -> float:
        """The time at which the hold of the request ends or ended; minus infinity if it was never held."""
        record = self._records.get(key)
        return -math.inf if record is None else record.until

    def held(self, now: float) -> dict[str, float]:
        """The keys that are held, and for how many seconds yet."""
        return {key: record.until - now for key, record in self._records.items() if record.until > now}

    def forget(self, key: str) -> bool:
        """The request has succeeded, or is pardoned; returns whether anything was held against it."""
        return self._records.pop(key, None) is not None
