"""``Arenas``: host memory of the application that a context has mapped."""

from collections.abc import Callable

from callboard.core.backend import AccelDevice
from callboard.device.host.channel import Channel
from callboard.device.host.context.admission.shortage import shortage
from callboard.device.protocol.messages import MapArena

__all__ = ["Arenas"]


class Arenas:
    """Maps arenas when they are announced; those for which there was no room, when an op names them.

    Args:
        channel: Maps them into this process.
        device: Registers them.
        trim: Returns cached memory to the driver, so that there is more room.

    Attributes:
        mapped: Address and size by id.
    """

    def __init__(self, channel: Channel, device: AccelDevice, trim: Callable[[], None]) -> None:
        self._channel = channel
        self._device = device
        self._trim = trim
        self._waiting: dict[int, MapArena] = {}
        self._addresses: dict[int, int] = {}  # of those that are in this process, registered or not
        self.mapped: dict[int, tuple[int, int]] = {}

    def announce(self, message: MapArena) -> None:
        """Map an arena if there is room.

        Raises:
            TimeoutError: Its descriptor did not arrive.
        """
        self._waiting[message.arena] = message
        for trim in (self._trim, lambda: None):
            try:
                self._map(message)
            except Exception as e:  # of the system or a driver: raised again unless it is a shortage
                if shortage(e, "") is None:
                    raise
                trim()
            else:
                return

    def find(self, arena: int) -> tuple[int, int]:
        """Address and size of an arena; ``(0, -1)`` of one that has not been announced.

        Raises:
            OutOfMemory: This process has no room for it.
        """
        message = self._waiting.get(arena)
        if message is not None:
            try:
                self._map(message)
            except Exception as e:  # of the system or a driver: raised again unless it is a shortage
                short = shortage(e, f"an arena of {message.nbytes:,} bytes")
                if short is None:
                    raise
                raise short from e
        return self.mapped.get(arena, (0, -1))

    def forget(self, arena: int) -> None:
        """The application releases it; it is unused."""
        self._waiting.pop(arena, None)
        self._addresses.pop(arena, None)
        address, _ = self.mapped.pop(arena, (None, 0))
        if address is not None:
            self._device.unregister_host(address)
        self._channel.unmap_arena(arena)

    def close(self) -> None:
        """Release all arenas from the device."""
        for address, _ in self.mapped.values():
            self._device.unregister_host(address)

    def _map(self, message: MapArena) -> None:
        arena = message.arena
        if arena not in self._addresses:
            self._addresses[arena] = self._channel.map_arena(arena, message.nbytes, message.address)
        self._device.register_host(self._addresses[arena], message.nbytes)
        self.mapped[arena] = self._addresses[arena], message.nbytes
        del self._waiting[arena]
