"""Selection of the handler of a message: the instance's, a behaviour that replaces it, or the runtime itself."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from callboard.actors._runtime.envelopes import Kill, Obituary, Poison, Tick
from callboard.actors._runtime.table import bind, find
from callboard.actors.errors import ActorKilled, DeathPact
from callboard.actors.watch import Terminated

if TYPE_CHECKING:
    from callboard.actors._runtime.cell import Cell
    from callboard.actors.actor import Actor

__all__ = ["Dispatch"]

Handler = Callable[[Any], Any]


class Dispatch:
    """The handlers of a cell's present instance.

    Attributes:
        table: Handlers by the class of their message; classes are added when they are first received.
    """

    __slots__ = ("_behaviour", "_behaviours", "_cell", "table")

    def __init__(self, cell: "Cell") -> None:
        self._cell = cell
        self._behaviour: Handler | None = None
        self._behaviours: list[Handler | None] = []
        self.table: dict[type, Handler] = {}

    def adopt(self, actor: "Actor") -> None:
        """Take the handlers of a new instance."""
        self._behaviour = None
        self._behaviours.clear()
        self._fill(actor)

    def become(self, behaviour: Handler, stacked: bool) -> None:
        """Have ``behaviour`` take all messages.

        Args:
            stacked: :meth:`unbecome` goes back to the present one, not to the instance's handlers.
        """
        if stacked:
            self._behaviours.append(self._behaviour)
        else:
            self._behaviours.clear()
        self._behaviour = behaviour
        self._fill(self._cell.actor)

    def unbecome(self) -> None:
        """Go back to the behaviour before, or to the instance's handlers."""
        self._behaviour = self._behaviours.pop() if self._behaviours else None
        self._fill(self._cell.actor)

    def forget(self) -> None:
        """Drop the instance; the cell has ended."""
        self.table = {}

    def _fill(self, actor: "Actor | None") -> None:
        table: dict[type, Handler] = {} if self._behaviour is not None or actor is None else bind(actor)
        if self._cell.tap is not None:
            table = {cls: self._cell.tap.around(handler) for cls, handler in table.items()}
        table[Tick] = self._on_tick
        table[Obituary] = self._on_obituary
        table[Poison] = self._on_poison
        table[Kill] = self._on_kill
        self.table = table

    def resolve(self, message: Any) -> Handler:
        """The handler of a message class that is not in the table yet."""
        cls = type(message)
        handler = None if self._behaviour is not None else find(self.table, cls)
        if handler is None:
            handler = self._behave if self._behaviour is not None else self._no_handler
            if self._cell.tap is not None:
                handler = self._cell.tap.around(handler)
        self.table[cls] = handler
        return handler

    def _behave(self, message: Any) -> Any:
        behaviour = self._behaviour
        result = behaviour(message) if behaviour is not None else NotImplemented
        return self._no_handler(message) if result is NotImplemented else result

    def _no_handler(self, message: Any) -> Any:
        cell = self._cell
        if isinstance(message, Terminated):
            raise DeathPact(
                f"{cell.path} watched {message.ref.path}, which stopped, and has no handler for Terminated"
            ) from message.cause
        assert cell.actor is not None
        return cell.actor.unhandled(message)

    # -- the runtime's own ---------------------------------------------------------------------------------------------

    def _inner(self, message: Any) -> Any:
        handler = self.table.get(type(message)) or self.resolve(message)
        return handler(message)

    def _on_tick(self, tick: Tick) -> Any:
        if not self._cell.timers._accept(tick):
            return None
        self._cell.current = tick.message
        if self._cell.tap is not None:
            self._cell.tap.comes_from("timer", tick.generation)
        return self._inner(tick.message)

    def _on_obituary(self, obituary: Obituary) -> Any:
        if not self._cell.watches.accept(obituary):
            return None
        if self._cell.tap is not None:
            self._cell.tap.comes_from("watch", 0)
        return self._inner(obituary.message)

    def _on_poison(self, _: Poison) -> None:
        if self._cell.tap is not None:
            self._cell.tap.pill("poison")
        self._cell.begin_stop(self._cell.system.stop_timeout)

    def _on_kill(self, _: Kill) -> None:
        if self._cell.tap is not None:
            self._cell.tap.pill("kill")
        raise ActorKilled(f"{self._cell.path} was killed")
