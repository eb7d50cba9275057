"""Death watch: exactly one message per watch, also for an actor that has stopped already."""

from functools import partial
from typing import TYPE_CHECKING, Any

from callboard.actors._runtime import lifecycle
from callboard.actors._runtime.envelopes import Obituary
from callboard.actors.errors import WatchConflict
from callboard.actors.messages import Msg
from callboard.actors.refs import ActorRef

if TYPE_CHECKING:
    from callboard.actors._runtime.cell import Cell
    from callboard.actors.actor import Actor  # noqa: F401 -- named in a base class below

__all__ = ["Terminated", "Watches"]


class Terminated(Msg["Actor"]):
    """A watched actor has stopped for good; never sent for a restart.

    An actor that does not handle it fails with ``DeathPact``.

    Attributes:
        ref: the actor that stopped.
        cause: the failure that stopped it, or None.
    """

    ref: ActorRef[Any]
    cause: BaseException | None = None


class Watches:
    """The actors that one actor watches."""

    __slots__ = ("_owner", "_watched")

    def __init__(self, owner: "Cell") -> None:
        self._owner = owner
        self._watched: dict[int, tuple[Cell, Any]] = {}

    def watch(self, target: "Cell", message: Any) -> None:
        """Have ``message`` (None: :class:`Terminated`) delivered when ``target`` stops.

        Watching again with the same message has no effect.

        Raises:
            WatchConflict: it is watched with another message.
        """
        if target is self._owner:
            raise ValueError(f"{target.path} cannot watch itself")
        known = self._watched.get(target.uid)
        if known is not None:
            if known[1] is message or known[1] == message:
                return
            raise WatchConflict(f"{self._owner.path} watches {target.path} with another message; unwatch it first")
        self._watched[target.uid] = (target, message)
        target.post_system(lifecycle.on_listen, self._owner, partial(_bury, self._owner, target, message))

    def unwatch(self, target: "Cell") -> None:
        """Forget it; a message that is queued already is not delivered."""
        if self._watched.pop(target.uid, None) is not None:
            target.post_system(lifecycle.on_unlisten, self._owner)

    def accept(self, obituary: Obituary) -> bool:
        """True if this obituary is to be delivered; once per watch."""
        if obituary.confirmed:
            return True
        if self._watched.pop(obituary.uid, None) is None:
            return False
        obituary.confirmed = True
        return True

    def forget_all(self) -> None:
        """Unwatch all actors."""
        for target, _ in list(self._watched.values()):
            self.unwatch(target)


def _bury(watcher: "Cell", target: "Cell", message: Any, cause: BaseException | None) -> None:
    watcher.push_internal(Obituary(target.uid, Terminated(ref=target.ref, cause=cause) if message is None else message))
