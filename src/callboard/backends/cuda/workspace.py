"""``Workspace``: device memory that the plans of a library use, one after the other."""

import threading
from typing import TYPE_CHECKING, Protocol

from callboard.core.backend import Memory

if TYPE_CHECKING:
    from callboard.backends.cuda.device import CudaDevice

__all__ = ["HasWorkspace", "Room", "Workspace"]

ROUND = 2 << 20
"""Workspaces grow in steps of this number of bytes."""


class Room:
    """A workspace as it was when plans were made for it.

    Attributes:
        memory: Device memory of the workspace.
        plans: So many use it.
    """

    __slots__ = ("memory", "plans")

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        self.plans = 0


class Workspace:
    """Device memory that all plans share, since their work follows each other on one stream.

    A plan that needs more replaces the memory, by at least half as much again. Older plans keep the memory that they
    were made for, so that a recorded graph stays valid; it is freed with the last of them.
    """

    def __init__(self, device: "CudaDevice") -> None:
        self._device = device
        self._lock = threading.Lock()
        self._rooms: list[Room] = []

    def lease(self, nbytes: int) -> Room:
        """Lease at least this number of bytes for a plan; any thread.

        Raises:
            OutOfMemory
        """
        with self._lock:
            if not self._rooms or self._rooms[-1].memory.nbytes < nbytes:
                largest = self._rooms[-1].memory.nbytes if self._rooms else 0
                size = max(nbytes, largest + largest // 2)
                self._rooms.append(Room(self._device.allocate(-(-size // ROUND) * ROUND)))
            room = self._rooms[-1]
            room.plans += 1
            return room

    def leave(self, room: Room) -> None:
        """A plan has gone, and its work is done."""
        with self._lock:
            room.plans -= 1
            if not room.plans and room in self._rooms[:-1]:
                self._rooms.remove(room)
                self._device.release(room.memory)

    def close(self) -> None:
        """Release everything; nothing runs."""
        while self._rooms:
            self._device.release(self._rooms.pop().memory)


class HasWorkspace(Protocol):
    """A library whose plans share a workspace.

    Attributes:
        device: The device.
        workspace: Workspace of its plans.
    """

    device: "CudaDevice"
    workspace: Workspace
