"""``HostPlace``: where the hosts of a device are started; ``Node``: always on one machine, whose address is known."""

import ssl
from typing import Protocol

from callboard.core.backend import DeviceInfo
from callboard.device.protocol.handshake import LEAST
from callboard.device.supervision.remote.host import Address, describe

__all__ = ["LOST_AFTER", "HostPlace", "Node"]

LOST_AFTER = 5.0
"""Default seconds of silence after which application and node consider each other lost."""


class HostPlace(Protocol):
    """The location in which the hosts of a device are started.

    Attributes:
        lost_after: Seconds of silence after which application and node consider each other lost.
    """

    @property
    def lost_after(self) -> float: ...

    async def locate(self) -> Address:
        """Return the node for the next host. Raises ``HostEnd`` if there is none."""
        ...

    async def describe(self, which: str) -> DeviceInfo:
        """Return the device of this name there. Raises :class:`BackendUnavailable` if there is none."""
        ...


class Node:
    """Another machine, where ``callboard host --listen`` runs: ``cb.device("cuda", node=cb.Node("10.0.0.7:4600", …))``.

    The device is used like one of this machine. Its arrays stay there; host arrays are sent over the connection. When
    the connection is cut, or silent for ``lost_after`` seconds, its context counts as lost, and the next one is started
    as soon as the node answers again; messages of the old one are not read.

    Args:
        address: ``"host:port"``.
        token: Secret that the node was started with. It permits running code on the node.
        tls: TLS context that encrypts the connection (``ssl.create_default_context(cafile=...)``). None: the token is
            not sent, but an observer of the network can read and change everything else.
        lost_after: Seconds of silence after which either side considers the other lost; the node then ends its host. An
            event loop that is busy for longer, up to a minute, does not count as silence.

    Raises:
        ValueError: The address has no port, the token is too short, or ``lost_after`` is less than 2 s.
    """

    def __init__(
        self, address: str, *, token: str, tls: ssl.SSLContext | None = None, lost_after: float = LOST_AFTER
    ) -> None:
        host, _, port = address.rpartition(":")
        if not host or not port.isdecimal():
            raise ValueError(f"address is {address!r}; use 'host:port'")
        if len(token) < LEAST:
            raise ValueError(f"the token has {len(token)} characters; it needs at least {LEAST}")
        if lost_after < 2.0:
            raise ValueError(
                f"lost_after is {lost_after:g}; signs of life are sent every second, so it must be at least 2"
            )
        self._address = Address(host.strip("[]"), int(port), token, tls)
        self.lost_after = lost_after

    async def locate(self) -> Address:
        """See :class:`HostPlace`."""
        return self._address

    async def describe(self, which: str) -> DeviceInfo:
        """See :class:`HostPlace`."""
        return await describe(self._address, which)

    def __str__(self) -> str:
        return str(self._address)

    def __repr__(self) -> str:
        return f"<Node {self._address}>"
