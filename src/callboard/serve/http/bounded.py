"""A limit of connections: those beyond it are refused, and the others go on."""

import asyncio
from typing import Any

from uvicorn.protocols.http.auto import AutoHTTPProtocol

__all__ = ["bounded"]

REFUSED_FOR = 5.0
"""Seconds until a refused connection that asks nothing is closed."""


def bounded(most: int) -> type[asyncio.Protocol]:
    """Uvicorn's protocol with a limit of connections; one beyond it gets a 503 response and is closed.

    uvicorn's own ``limit_concurrency`` refuses requests on all connections as soon as there are that many, idle ones
    included: a client that opened many once, and keeps them, would keep all others from being served.
    """
    base: Any = AutoHTTPProtocol

    class Bounded(base):  # type: ignore[misc]
        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self.limit_concurrency = None  # of uvicorn: 0 is exceeded by every request, None by none
            if len(self.connections) > most:
                self.limit_concurrency = 0
                self.loop.call_later(REFUSED_FOR, transport.close)

    return Bounded
