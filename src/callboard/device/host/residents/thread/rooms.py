"""``Rooms``: memory for the arrays of a call's result."""

import queue
from typing import TYPE_CHECKING

from callboard.actors.errors import ActorStopped
from callboard.core.errors import MailboxFull
from callboard.device.host.residents.item import Item
from callboard.device.host.residents.staging import HostMemory
from callboard.device.protocol.failures import as_error
from callboard.device.protocol.messages import DeviceRoom, Room

if TYPE_CHECKING:
    from callboard.device.host.residents.actors import HostActors
    from callboard.device.host.residents.thread.thread import ActorThread

__all__ = ["Rooms"]


class Rooms:
    """Has the application provide memory for results, and waits for it on the actor's thread.

    Args:
        actor: The actor.
        host: The actors of the host.
    """

    def __init__(self, actor: "ActorThread", host: "HostActors") -> None:
        self._actor = actor
        self._host = host
        self._given: queue.SimpleQueue[Room | DeviceRoom | None] = queue.SimpleQueue()

    def give(self, room: Room | DeviceRoom) -> None:
        """Answer a request. Admitting thread."""
        self._given.put(room)

    def stop(self) -> None:
        """The actor is to end: a call that waits for memory fails. Admitting thread."""
        self._given.put(None)

    def on_host(self, item: Item, nbytes: int) -> HostMemory:
        """Host memory for the arrays of a result: sent with the call, or provided by the application now.

        Raises:
            ActorStopped, MailboxFull, OutOfMemory
        """
        if item.room is not None and nbytes <= item.room.nbytes:
            return item.room
        self._stop_leading()
        self._host.post_room_wanted(item, nbytes)
        room = self._given.get()
        if not isinstance(room, Room):
            raise self._stopped()
        if not room.place:
            error = MailboxFull(room.why)
            error.retryable = room.retryable
            raise error
        return self._host.memory_at(room, nbytes)

    def on_device(self, item: Item, nbytes: int) -> int:
        """Address of memory in the device's own host, for the device arrays of a result.

        Raises:
            ActorStopped: The actor is to end.
            AccelError: The device's own host has none.
        """
        self._stop_leading()
        self._host.post_device_room_wanted(item, nbytes)
        room = self._given.get()
        if not isinstance(room, DeviceRoom):
            raise self._stopped()
        if room.failure is not None:
            raise as_error(room.failure)
        return self._host.attached.address(*room.region)

    def _stop_leading(self) -> None:
        """Let another thread serve, because this one is going to wait."""
        helm = self._host.helm
        if helm is not None and helm.end(self._actor):
            helm.give_back()

    def _stopped(self) -> ActorStopped:
        return ActorStopped(f"{self._actor.name} was stopped")
