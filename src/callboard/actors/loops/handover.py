"""``Handover``: a queue to one thread, which is woken by a :class:`~callboard.actors.loops.bell.Bell`."""

from collections import deque
from typing import Generic, TypeVar

from callboard.actors.loops.bell import Bell

__all__ = ["Handover"]

T = TypeVar("T")


class Handover(Generic[T]):
    """Items for one thread, in the order in which any threads have put them.

    Like ``queue.SimpleQueue``, for a thread that usually waits: that one is woken by a lock.
    """

    __slots__ = ("_bell", "_items", "_waiting")

    def __init__(self) -> None:
        self._items: deque[T] = deque()
        self._bell = Bell()
        self._waiting = False

    def put(self, item: T) -> None:
        """Add an item. Any thread."""
        self._items.append(item)
        if self._waiting:
            self._bell.ring()

    def get(self) -> T:
        """Take the first item; wait until there is one. One thread at a time.

        Raises:
            LookupError: There is none, and the handover is closed.
        """
        while True:
            try:
                return self._items.popleft()
            except IndexError:
                self._waiting = True
                if not (self._items or self._bell.wait()):  # once more, now that :meth:`put` rings
                    raise LookupError("the handover is closed") from None
                self._waiting = False

    def close(self) -> None:
        """No thread waits for items any more."""
        self._bell.close()

    def __len__(self) -> int:
        return len(self._items)
