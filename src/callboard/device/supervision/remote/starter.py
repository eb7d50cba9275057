"""``RemoteStarter``: starts the hosts of a device on nodes that are chosen for each host."""

import asyncio
from collections.abc import Awaitable, Callable

from callboard.device.config import DeviceConfig
from callboard.device.protocol.messages import FromHost
from callboard.device.protocol.remote import Start
from callboard.device.supervision.hosts.base import Host, HostEnd, Unreached
from callboard.device.supervision.hosts.starter import HostStarter
from callboard.device.supervision.remote.host import Address, RemoteHost

__all__ = ["RemoteStarter"]

AGAIN = 0.05, 1.0
"""Seconds between two attempts to reach a node that does not answer: at first, and at most."""
AWAY = 60.0
"""Seconds for which it is tried. If each attempt counted as a lost context, a node that starts again would spend the
device's budget of losses, and calls that wait for it would fail."""


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
        self._until = self._pause = 0.0  # while a node does not answer

    async def start(
        self, on_message: Callable[[FromHost], None], on_end: Callable[[HostEnd], None], label: str
    ) -> Host:
        address = await self._locate()
        config = self._config
        start = Start(
            self._which,
            label,
            config.hang_after,
            config.step_timeout,
            config.host.interval,
            self._lost_after,
            config.guardian,
        )
        host = await RemoteHost.start(address, start, on_message, on_end)
        self._pause = 0.0
        return host

    def again(self, error: Exception) -> float | None:
        now = asyncio.get_running_loop().time()
        first, most = AGAIN
        if not isinstance(error, Unreached) or (self._pause and now >= self._until):
            self._pause = 0.0
            return None
        if not self._pause:
            self._until = now + AWAY
        self._pause = min(2 * self._pause, most) or first
        return self._pause
