"""Stash: set messages aside and take them back later, in their order, in front of the others."""

from typing import TYPE_CHECKING, Any

from callboard.actors.errors import StashError, StashOverflow

if TYPE_CHECKING:
    from callboard.actors._runtime.cell import Cell

__all__ = ["Stash"]


class Stash:
    """The stashed messages of one actor, with their askers."""

    __slots__ = ("_items", "_owner")

    def __init__(self, owner: "Cell") -> None:
        self._owner = owner
        self._items: list[Any] = []

    def __len__(self) -> int:
        return len(self._items)

    def add(self, capacity: int | None) -> None:
        """Set the current message aside.

        Raises:
            StashError: there is no current message, or it was stashed or forwarded already.
            StashOverflow: ``capacity`` messages are stashed.
        """
        if capacity is not None and len(self._items) >= capacity:
            raise StashOverflow(f"{self._owner.path} has {capacity} stashed messages, which is its stash_capacity")
        self._items.append(self.take())

    def take(self) -> Any:
        """The current item, for which this actor is no longer responsible."""
        item = self._owner.current
        if item is None or item is self._owner.taken:
            raise StashError(f"{self._owner.path}: no current message, or it was stashed or forwarded already")
        self._owner.current = self._owner.taken
        return item

    def put_back(self) -> int:
        """Prepend all stashed messages to the mailbox; returns how many."""
        count = len(self._items)
        if count:
            self._owner.lane.push_front(self._items)
            self._items.clear()
        return count

    def drop(self) -> None:
        """The actor stops: dead letters."""
        items, self._items = self._items, []
        for item in items:
            self._owner.discard(item)
