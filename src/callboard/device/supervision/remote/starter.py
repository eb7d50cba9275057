"""``RemoteStarter``: starts the hosts of a device on nodes that are chosen for each host."""

from collections.abc import Awaitable, Callable

from callboard.device.config import DeviceConfig
from callboard.device.protocol.messages import FromHost
from callboard.device.protocol.remote import Start
from callboard.device.supervision.hosts.base import Host, HostEnd
from callboard.device.supervision.hosts.starter import HostStarter
from callboard.device.supervision.remote.host import Address, RemoteHost

__all__ = ["RemoteStarter"]


class RemoteStarter(HostStarter):
    """Each host is a child process of a node, which relays.

    Args:
        locate: Returns the node for the next host; it may be another one after a loss. Raises ``HostEnd`` if there is
            none.
        which: Name of the device on its node.
        config: Configuration of the device.
        lost_after: Seconds of silence after which either side considers the other lost.
    """

    isolated = True
    recovers = True
    remote = True

    def __init__(
        self, locate: Callable[[], Awaitable[Address]], which: str, config: DeviceConfig, lost_after: float
    ) -> None:
        self._locate = locate
        self._which = which
        self._config = config
        self._lost_after = lost_after

    async def start(
        self, on_message: Callable[[FromHost], None], on_end: Callable[[HostEnd], None], label: str
    ) -> Host:
        address = await self._locate()
        config = self._config
        start = Start(
            self._which, label, config.hang_after, config.step_timeout, config.host.interval, self._lost_after
        )
        return await RemoteHost.start(address, start, on_message, on_end)
