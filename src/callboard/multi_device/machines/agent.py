"""Run by a cluster's engine on a node: ``NodeAgent`` serves a device, ``RegionAgent`` the tables of shared regions."""

import asyncio

from callboard.device.supervision.remote.node import NodeServer
from callboard.multi_device.machines.engine import NodeTls
from callboard.multi_device.sharding.shared import Regions

__all__ = ["NodeAgent", "RegionAgent"]

UNUSED = 60.0
"""Seconds without an application after which a region agent ends."""


class NodeAgent:
    """Serves one device of its node.

    Its process belongs to the engine, and ends with the application that requested it.

    Args:
        token: Secret that the application proves to have.
        tls: TLS files for an encrypted connection; None: it is not encrypted.
    """

    def __init__(self, token: str, tls: NodeTls | None) -> None:
        self._token = token
        self._tls = tls
        self._server: NodeServer | None = None

    async def serve(self, host: str) -> int:
        """Listen at an address of this machine; the port."""
        self._server = NodeServer(self._token, None if self._tls is None else self._tls.server())
        _, port = await self._server.start(host)
        return port

    async def live(self) -> None:
        """Never returns: fails when the process has ended, which is how the engine reports it."""
        await asyncio.Event().wait()


class RegionAgent:
    """Holds the tables of the cluster's shared regions; there is one in a cluster.

    Its process belongs to the engine and to no application. It ends when it has had no application for a minute.

    Args:
        token: Secret that the applications prove to have; of the application that was first.
        tls: As for :class:`NodeAgent`.
    """

    def __init__(self, token: str, tls: NodeTls | None) -> None:
        self.token = token
        self._tls = tls
        self._port = 0
        self._server: NodeServer | None = None
        self._regions: Regions | None = None
        self._starting = asyncio.Lock()

    async def serve(self, host: str, *, follows: bool) -> int:
        """Listen at an address of this machine, unless it does already; the port.

        Args:
            host: The address.
            follows: See :class:`.Regions`.
        """
        async with self._starting:
            if self._regions is None:
                regions = Regions(follows=follows)
                self._server = NodeServer(self.token, None if self._tls is None else self._tls.server(), regions)
                _, self._port = await self._server.start(host)
                self._regions = regions
        return self._port

    async def until_unused(self) -> None:
        """Wait until there has been no application for a minute."""
        while self._regions is None or self._regions.idle < UNUSED:  # noqa: ASYNC110 - each use begins it anew
            await asyncio.sleep(UNUSED / 10)
