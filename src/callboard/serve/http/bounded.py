"""A limit of connections: further ones are refused, while the others continue.

Connections report when they are lost.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from uvicorn.protocols.http.auto import AutoHTTPProtocol

from callboard.serve.http.leaving import CONNECTION

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
        _lost = False
        _on_lost: Callable[[], object] | None = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self.app_state: dict[str, Any] = self.app_state | {CONNECTION: self}  # uvicorn gives each request a copy
            self.limit_concurrency = None  # of uvicorn: 0 is exceeded by every request, None by none
            if len(self.connections) > most:
                self.limit_concurrency = 0
                self.loop.call_later(REFUSED_FOR, transport.close)

        def connection_lost(self, exc: Exception | None) -> None:
            super().connection_lost(exc)
            self._lost = True
            if self._on_lost is not None:
                self._on_lost()

        def when_lost(self, call: Callable[[], object] | None) -> None:
            """See :class:`Connection`. Requests of a connection run one after the other."""
            self._on_lost = call
            if self._lost and call is not None:
                call()

    return Bounded
