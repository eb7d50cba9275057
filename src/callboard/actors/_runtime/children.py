"""The children of a cell: their names, and waiting for their end."""

import asyncio
import logging
import re
from typing import TYPE_CHECKING, Any, Final

from callboard.actors.actor import Actor
from callboard.actors.errors import ActorStopped, NameInUse
from callboard.actors.props import Props

if TYPE_CHECKING:
    from callboard.actors._runtime.cell import Cell

__all__ = ["Children"]

_log = logging.getLogger("callboard.actors")

_VALID_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:@+=~-]*")
_GRACE: Final = 2.0


class Children:
    """Living children by name, in the order they were made."""

    __slots__ = ("_cells", "_count", "_owner", "_waiter")

    def __init__(self, owner: "Cell") -> None:
        self._owner = owner
        self._cells: dict[str, Cell] = {}
        self._count = 0
        self._waiter: asyncio.Future[None] | None = None

    def cells(self) -> list["Cell"]:
        """A snapshot; usable from any thread."""
        return list(self._cells.values())

    def get(self, name: str) -> "Cell | None":
        """The living child of that name."""
        return self._cells.get(name)

    def holds(self, cell: "Cell") -> bool:
        """True if ``cell`` is one of them and alive."""
        return self._cells.get(cell.name) is cell

    def spawn(self, props: Props[Any], name: str | None) -> "Cell":
        """Make and start a child.

        Raises:
            TypeError: not a Props, or those of a class that is not an Actor.
            ValueError: the name has other characters than ``A-Z a-z 0-9 _ . : @ + = ~ -`` or begins with a sign.
            NameInUse: a living child has it.
            ActorStopped: the owner or the system is stopping.
        """
        factory = Props.checked(props)._factory
        if isinstance(factory, type) and not issubclass(factory, Actor):
            raise TypeError(
                f"{factory.__qualname__} is not an Actor; derive from it (a ResidentActor is made by its device: "
                "device.actor_of)"
            )
        owner = self._owner
        if owner.closed or owner.system.is_stopping:
            why = f"the system {owner.system.name}" if owner.system.is_stopping else owner.path
            raise ActorStopped(f"{why} is stopping: {owner.path} makes no more actors") from owner.cause
        name = props.name if name is None else name
        if name is None:
            # No user can choose a name with a dollar sign, so this one is free.
            self._count += 1
            name = f"${props.label}-{self._count}"
        elif not _VALID_NAME.fullmatch(name):
            raise ValueError(f"not a name for an actor: {name!r}")
        elif name in self._cells:
            raise NameInUse(f"{owner.path} has a living child {name!r}")
        cell = owner.system._new_cell(owner, props, name)
        self._cells[name] = cell
        if not cell.port.run(cell.start):
            del self._cells[name]
            raise ActorStopped(f"the thread of {cell.path} has ended")
        return cell

    def remove(self, cell: "Cell") -> None:
        """Remove a child that has ended; called on its thread."""
        if self.holds(cell):
            del self._cells[cell.name]
        if not self._cells and self._waiter is not None:
            self._owner.port.run(self._all_gone)

    def _all_gone(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def stop_all(self, timeout: float | None) -> None:
        """Stop all children, the youngest first, and wait until they have ended.

        A child that still runs when its time and some grace are over is abandoned with an error in the log.
        """
        owner = self._owner
        if not self._cells:
            return
        seconds = owner.system.stop_timeout if timeout is None else timeout
        for cell in reversed(self.cells()):
            owner.watches.unwatch(cell)
            cell.request_stop(seconds)
        waiter = self._waiter = owner.port.loop.create_future()
        if not self._cells:  # the last one of another thread may have gone before there was a waiter
            self._waiter = None
            return
        timer = owner.port.clock.call_later(seconds + _GRACE, self._all_gone)
        try:
            await waiter
        finally:
            timer.cancel()
            self._waiter = None
        for cell in self.cells():
            _log.error("%s does not stop; it is abandoned", cell.path)
        self._cells.clear()
