"""``Replica``: one copy of a model, as the caller gives it to a pool; ``Seat``: that copy in its place in the pool."""

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from callboard.actors.errors import ActorStopped, MailboxFull, printable
from callboard.core.errors import BudgetSpent, DeviceStopped
from callboard.device.client.handle import Device
from callboard.device.client.line.status import ResidentState
from callboard.device.client.residents.ref import ResidentRef
from callboard.patterns.replicas.member import Member, Phase
from callboard.patterns.requests.calling import Executor, UserCall

__all__ = ["NotSent", "Replica", "Seat", "fault_of_replica"]


@dataclass(frozen=True)
class Replica:
    """One copy of a model.

    Attributes:
        call: Gets an item, returns its value or something to await: a function, an async one, a chain of device ops, or
            ``functools.partial(model.call, Model.predict)`` of a resident actor.
        name: Name, unique in the pool; None: the pool numbers it. Consistent hashing uses it.
        device: Device of the replica, which gets no requests while that is being rebuilt. For a resident actor's method
            it is determined automatically.
        close: Called, and awaited if it can be, when the pool has done with it.
    """

    call: Callable[[Any], Any]
    name: str | None = None
    device: Device | None = None
    close: Callable[[], Any] | None = None


class NotSent(Exception):
    """A resident actor refused a call, so that the item was not run.

    Attributes:
        error: The exception that refused the call.
    """

    def __init__(self, error: Exception) -> None:
        super().__init__(printable(error))
        self.error = error


class Seat:
    """A member of the pool with its callable.

    Args:
        member: Member that the routing sees.
        replica: Replica that currently takes this place.
        executor: The executor that calls its function.
    """

    def __init__(self, member: Member, replica: Replica, executor: Executor) -> None:
        self.member = member
        self._executor: Executor = executor
        self.sit(replica)

    def sit(self, replica: Replica) -> None:
        """Another replica takes the place."""
        self._replica = replica
        self._actor = _resident(replica.call)
        self._device = replica.device
        call = replica.call if self._actor is None else functools.partial(_sent, replica.call)
        self.call = UserCall(call, "loop" if self._actor is not None else self._executor, self.member.limit)

    @property
    def runs_on(self) -> tuple[Any, ...]:
        """Its function, and its device if that is given."""
        return self.call, self._device

    @property
    def watched(self) -> bool:
        """True if a lost context shows in :attr:`state`."""
        return self._actor is not None or self._device is not None

    @property
    def state(self) -> Phase:
        """``READY``, ``AWAY`` while its actor or device is rebuilt, or ``STOPPED``."""
        if self._actor is not None:
            state = self._actor.state
            if state is ResidentState.READY:
                return Phase.READY
            return Phase.STOPPED if state is ResidentState.STOPPED else Phase.AWAY
        device = self._device
        if device is None:
            return Phase.READY
        if device.stopped:
            return Phase.STOPPED
        return Phase.READY if device.watch_generation().value == device.generation else Phase.AWAY

    async def back(self) -> None:
        """Wait until its actor or device is ready.

        Raises:
            ActorStopped, DeviceStopped, BackendUnavailable: It will not be.
        """
        if self._actor is not None:
            await self._actor.ready()
        elif self._device is not None:
            await self._device.ready()

    async def close(self) -> None:
        """The pool has done with the replica.

        Raises:
            Exception: Raised by the replica's ``close``.
        """
        self.call.close()
        if self._replica.close is not None:
            found = self._replica.close()
            if inspect.isawaitable(found):
                await found


def _resident(function: Any) -> "ResidentRef[Any] | None":
    """The actor whose method this calls."""
    while isinstance(function, functools.partial):
        function = function.func
    owner = getattr(function, "__self__", None)
    return owner if isinstance(owner, ResidentRef) else None


def _sent(call: Callable[[Any], Any], item: Any) -> Any:
    try:
        return call(item)
    except (ActorStopped, DeviceStopped, MailboxFull) as e:
        raise NotSent(e) from e


def fault_of_replica(error: Exception) -> bool:
    """True if an error is due to the replica rather than the item.

    ``ValueError``, ``TypeError``, ``LookupError``, ``ArithmeticError``, ``NotImplementedError`` and their subclasses
    (``ShapeError``, ``NumericalError``, ``UnsupportedOp``) are due to the item, and so is ``BudgetSpent``.
    """
    of_item = ValueError | TypeError | LookupError | ArithmeticError | NotImplementedError | BudgetSpent
    return not isinstance(error, of_item)
