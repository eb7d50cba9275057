"""``NodeAgent``: run by a cluster's engine on a node: a :class:`.NodeServer` for one device."""

import asyncio

from callboard.device.supervision.remote.node import NodeServer
from callboard.multi_device.machines.engine import NodeTls

__all__ = ["NodeAgent"]


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
