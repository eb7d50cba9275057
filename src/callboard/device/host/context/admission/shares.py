"""``Shares``: memory of a context that another process may have open."""

from collections.abc import Iterable

from callboard.core.backend import AccelDevice, Memory

__all__ = ["Shares"]


class Shares:
    """Shares allocations, and frees them only when the application reports that no other process has them open.

    Several parties are involved before an allocation is freed: another process that has opened it keeps it open
    meanwhile, and uses it only while a call holds an array in it.

    Args:
        device: Device that the memory belongs to.
    """

    def __init__(self, device: AccelDevice) -> None:
        self._device = device
        self._handles: dict[int, bytes] = {}  # by address
        self._leaving: dict[bytes, Memory] = {}

    def handle(self, memory: Memory) -> bytes:
        """Return the handle with which another process opens the allocation.

        Raises:
            UnsupportedOp, AccelError: It cannot be shared.
        """
        handle = self._handles.get(memory.address)
        if handle is None:
            handle = self._handles[memory.address] = self._device.share(memory)
        return handle

    def release(self, memory: Memory) -> None:
        """Free an allocation, later if it was shared."""
        handle = self._handles.pop(memory.address, None)
        if handle is None:
            self._device.release(memory)
        else:
            self._leaving[handle] = memory

    def leaving(self) -> list[bytes]:
        """The allocations that are to be freed as soon as no other process has them open."""
        return list(self._leaving)

    def forget(self, handles: Iterable[bytes]) -> None:
        """No other process has these open any more."""
        for handle in handles:
            memory = self._leaving.pop(handle, None)
            if memory is not None:
                self._device.release(memory)
