"""How many hosts may start at the same time. Where cores are few, standbys wait until nothing else starts."""

import threading
import time
import weakref
from collections.abc import Callable

__all__ = ["CORES", "STARTING", "Starting", "starts_at_once"]

CORES = 4
"""Cores of the machine for each host that starts at the same time: the start of one that imports torch keeps one to two
cores busy for several seconds, and the takeover and the application need theirs."""

SETTLE = 0.5
"""Seconds without a start after which it is calm: the application opens its next device, makes actors, and uses them
for the first time, or again after a loss."""

PATIENCE = 60.0
"""Seconds after which what is still starting delays no standby any more."""


def starts_at_once(cores: int, calm: bool) -> int:
    """The number of standbys of a device that may be starting at the same time.

    Args:
        cores: Cores that this process may use.
        calm: Nothing else starts that a start would delay on a machine with few cores.
    """
    return max(cores // CORES, 1 if calm else 0)


class Starting:
    """What starts in this process and is waited for: contexts that open, actors that are set up. Any thread.

    Args:
        clock: Monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._since: weakref.WeakKeyDictionary[object, float] = weakref.WeakKeyDictionary()
        self._last = -SETTLE
        self._lock = threading.Lock()

    def note(self, who: object, starts: bool) -> None:
        """Something of ``who`` starts, or nothing of it does."""
        with self._lock:
            if starts:
                self._since.setdefault(who, self._clock())
            elif self._since.pop(who, None) is not None:
                self._last = self._clock()

    @property
    def is_calm(self) -> bool:
        """Nothing has been starting for :data:`SETTLE` seconds, but what takes longer than :data:`PATIENCE`."""
        with self._lock:
            now = self._clock()
            return now - self._last >= SETTLE and all(now - since > PATIENCE for since in self._since.values())


STARTING = Starting()
"""That of this process."""
