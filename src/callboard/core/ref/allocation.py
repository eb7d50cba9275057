"""``Allocation``: the one owner of a buffer on a device."""

import threading
from typing import Protocol

__all__ = ["GUARD", "Allocation", "Released"]


class Released(Protocol):
    """Takes the ids of buffers that cannot be named any more."""

    def append(self, id: int, /) -> None: ...


GUARD = threading.RLock()
"""Guards who uses an allocation, and its end. Re-entrant: a garbage collection inside it may unpin."""


class Allocation:
    """The one owner of a buffer on the device, shared by all refs and views of it.

    Attributes:
        foreign: True if code other than ops may write it: another package, another process, the host.
        memory: Keeps the memory, once its address has been told; what it is is the backend's business.
    """

    __slots__ = ("__weakref__", "foreign", "freed", "id", "memory", "pins", "released")

    memory: object

    def __init__(self, id: int, released: Released) -> None:
        self.id = id
        self.released = released
        self.freed: bool | str = False  # or why it cannot be used yet
        self.pins = 0
        self.foreign = False

    def free(self) -> None:
        """Give the buffer back, when it is not pinned; freeing twice is harmless."""
        with GUARD:
            if self.freed:
                return
            self.freed = True
            pinned = self.pins
        self.memory = None  # an export that pins it has its own
        if not pinned:
            self._release()

    def pin(self) -> bool:
        """Keep the memory for a user other than ops, which also holds the allocation; False if it has been freed."""
        with GUARD:
            if self.freed:
                return False
            self.pins += 1
            return True

    def unpin(self) -> None:
        """Release a pin. Called on any thread, also inside a garbage collection."""
        with GUARD:
            self.pins -= 1
            last = self.freed and not self.pins
        if last:
            self._release()

    def _release(self) -> None:
        self.released.append(self.id)

    def __del__(self) -> None:  # runs anywhere, even inside a garbage collection: no lock, no loop, no log
        if not self.freed:
            self.released.append(self.id)
