"""``CONCERNS``: what a log record is about, read from the task that writes it. Each layer registers what it knows."""

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, Final

__all__ = ["CONCERNS", "REQUEST_ID", "TRACE"]

CONCERNS: Final[dict[str, Callable[[], Any]]] = {}
"""Fields of log records: each function returns the value for the running task, or None."""

REQUEST_ID: Final[ContextVar[str | None]] = ContextVar("callboard_request_id", default=None)
"""The id of the HTTP request for which the running code works, whether telemetry is on or not."""

TRACE: Final[ContextVar[str | None]] = ContextVar("callboard_trace", default=None)
"""The trace context of the request for which the running code works; see :mod:`callboard.events.tracing`."""
