"""Servers in front of others: ``server_behind`` finds the other, ``warn_of_small_batches`` checks the two."""

import functools
import logging
from typing import Any

from callboard.patterns.batching.server import DynamicBatchingServer
from callboard.patterns.requests.server import RequestServer

__all__ = ["server_behind", "warn_of_small_batches"]

_log = logging.getLogger(__name__)


def server_behind(function: Any) -> RequestServer[Any, Any] | None:
    """The server whose method this function is, such as ``server.submit``; None if it is none."""
    while isinstance(function, functools.partial):
        function = function.func
    server = getattr(function, "__self__", None)
    return server if isinstance(server, RequestServer) else None


def warn_of_small_batches(server: object, in_flight: int, name: str) -> None:
    """Log that a limit in front of a batching server keeps its batches below ``max_batch``, if it does."""
    if isinstance(server, DynamicBatchingServer) and in_flight < server.max_batch:
        _log.warning(
            "%s: at most %d requests are in flight, so no batch of %s reaches its max_batch, which is %d",
            *(name, in_flight, server.name, server.max_batch),
        )
