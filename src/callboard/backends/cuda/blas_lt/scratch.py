"""Scratch of the plans that take several steps: shared, since work of one stream comes one after the other."""

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from callboard.backends.cuda.device import CudaDevice
    from callboard.core.backend import Memory

__all__ = ["Scratch", "Shared"]


class Shared:
    """Memory of several plans.

    Attributes:
        address: Address of the memory.
        nbytes: Bytes of the memory.
        users: Plans that have it.
    """

    __slots__ = ("address", "memory", "nbytes", "users")

    def __init__(self, memory: "Memory", nbytes: int) -> None:
        self.memory = memory
        self.address = memory.address
        self.nbytes = nbytes
        self.users = 0


class Scratch:
    """One block, replaced by a larger one when a plan needs it; a block goes when the last of its plans is closed.

    Plans ask for it on the thread that prepares and give it back on the one that launches.
    """

    def __init__(self, device: "CudaDevice") -> None:
        self._device = device
        self._lock = threading.Lock()
        self._newest: Shared | None = None
        self._all: list[Shared] = []

    def share(self, nbytes: int) -> Shared:
        """Lease at least this number of bytes.

        Raises:
            OutOfMemory: There is no room.
        """
        with self._lock:
            if self._newest is None or self._newest.nbytes < nbytes:
                self._newest = Shared(self._device.allocate(nbytes), nbytes)
                self._all.append(self._newest)
            self._newest.users += 1
            return self._newest

    def give_back(self, shared: Shared) -> None:
        """One of its plans is closed: the stream has passed its last launch."""
        with self._lock:
            shared.users -= 1
            if shared.users == 0 and shared in self._all:
                self._release(shared)

    def close(self) -> None:
        """Free all; nothing runs any more."""
        with self._lock:
            for shared in list(self._all):
                self._release(shared)

    def _release(self, shared: Shared) -> None:
        self._all.remove(shared)
        if shared is self._newest:
            self._newest = None
        self._device.release(shared.memory)
