"""``warn_of_small_batches``: warns if a server in front of a batching server keeps its batches small."""

import functools
import logging
from typing import Any

from callboard.patterns.batching.server import DynamicBatchingServer

__all__ = ["warn_of_small_batches"]

_log = logging.getLogger(__name__)


def warn_of_small_batches(function: Any, in_flight: int, name: str) -> None:
    """Log that a limit in front of a batching server keeps its batches below ``max_batch``, if it does."""
    while isinstance(function, functools.partial):
        function = function.func
    server = getattr(function, "__self__", None)
    if isinstance(server, DynamicBatchingServer) and in_flight < server.max_batch:
        _log.warning(
            "%s: at most %d requests are in flight, so no batch of %s reaches its max_batch, which is %d",
            *(name, in_flight, server.name, server.max_batch),
        )
