"""``Noted``: what is known of the request that a task answers, for its response, the log and the access log."""

import logging
import math
import re
import secrets
import time
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping
from contextvars import ContextVar
from typing import Any

from callboard.events.kinds import HTTP
from callboard.events.ring import EVENTS, now
from callboard.events.tracing import is_sampled

__all__ = ["ACCESS", "REQUEST_ID", "Noted", "log_slow", "new_id", "noted", "parent_of"]

ACCESS = "callboard.serve.access"
"""The logger of the access log. It is off unless its level is INFO, whatever the level of the loggers above it is."""
REQUEST_ID = b"x-request-id"
PARENT = re.compile(
    rb"(?:00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}"
    rb"|(?!00|ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(?:-.*)?)",
    re.DOTALL,
)
"""A ``traceparent``; only versions after 00 may have further parts."""
LONGEST = 128
"""Characters of an id that a client gives at most."""

_access = logging.getLogger(ACCESS)
if _access.level == logging.NOTSET:  # not configured yet
    _access.setLevel(logging.WARNING)

_slow = math.inf

Send = Callable[[Any], Awaitable[None]]


class Noted:
    """A request.

    Args:
        scope: Its scope, from ASGI.

    Attributes:
        id: That of the client, where it is visible ASCII and not too long; else a new one.
        method: Method of the request.
        path: Path of the URL as it came, without the query.
        route: Pattern of the URL; empty if there is none.
        model, version: Those that it names, if they exist.
        tenant: As the app's ``tenant`` returned it.
        status: HTTP status of the response; 499 if the client has left.
        trace: Trace context of what it causes: its own, or, where no spans are made, the one that it came with.
    """

    __slots__ = (
        *(
            "_arrived",
            "_client",
            "_closes",
            "_parent",
            "_started",
            "id",
            "method",
            "model",
            "path",
            "route",
            "status",
            "tenant",
        ),
        *("trace", "version"),
    )

    def __init__(self, scope: Mapping[str, Any]) -> None:
        self.id = _id_of(scope["headers"])
        self.method: str = scope["method"]
        raw: bytes = scope.get("raw_path") or scope["path"].encode("ascii", "backslashreplace")
        self.path = raw.partition(b"?")[0].decode("ascii", "backslashreplace")
        self.route = ""
        self.model: str | None = None
        self.version: str | None = None
        self.tenant: Hashable = None
        self.status = 0
        self._client: Any = scope.get("client")
        self._closes = scope.get("http_version", "1.1").startswith("1.")  # HTTP/2 has no such header
        self._arrived = now()
        self._parent = self.trace = parent_of(scope["headers"])
        sampler = EVENTS.sampler
        if sampler is not None and self.method == "POST":  # all that models compute; not probes and pages
            self.trace = sampler.begin(self._parent)
        self._started = time.perf_counter()

    def fields(self) -> dict[str, Any]:
        """Fields of its log records."""
        tenant = self.tenant if isinstance(self.tenant, str | None) else repr(self.tenant)
        return {
            "request_id": self.id,
            "model": self.model,
            "version": self.version,
            "tenant": tenant,
            "route": self.route,
            "status": self.status,
        }

    def sending(self, send: Send, ends: Callable[[], bool] = lambda: False) -> Send:
        """``send`` that adds the id to the response, and, if the server ends, that its connection does."""
        header = REQUEST_ID, self.id.encode()

        async def with_id(message: Any) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), header]
                if self._closes and ends() and not any(name == b"connection" for name, _ in message["headers"]):
                    message["headers"].append((b"connection", b"close"))
                self.status = message["status"]
            await send(message)

        return with_id

    def end(self) -> None:
        """It is answered: write its event and the line of the access log, if they are wanted."""
        ring, trace, parent = EVENTS.ring, self.trace, self._parent
        if ring is not None and trace != parent and (EVENTS.ops or is_sampled(trace)):
            what = self.method, self.status or 500, self.id, self.model or "", self._arrived
            ring.append((next(ring.numbers), now(), HTTP, self.route, *what, trace, parent))
        seconds = time.perf_counter() - self._started
        slow = seconds >= _slow
        if _access.isEnabledFor(logging.WARNING if slow else logging.INFO):
            client = self._client[0] if self._client else "-"
            extra = {**self.fields(), "client": client, "seconds": round(seconds, 6)}
            about = client, self.method, self.path, self.status, seconds * 1e3, "slow, " if slow else "", self.id
            _access.log(
                logging.WARNING if slow else logging.INFO, '%s "%s %s" %d %.1f ms, %srequest %s', *about, extra=extra
            )


noted: ContextVar[Noted | None] = ContextVar("noted", default=None)
"""The request that this task answers."""


def log_slow(seconds: float) -> None:
    """Have each request that takes so long logged as a warning, with the access log on or off."""
    global _slow
    _slow = seconds


def new_id() -> str:
    """An id for a request that has none."""
    return secrets.token_hex(8)


def parent_of(headers: Iterable[tuple[bytes, bytes]]) -> str | None:
    """The W3C ``traceparent`` of a request; None if it has none, or one that is not valid."""
    for name, value in headers:
        if name == b"traceparent":
            found = PARENT.fullmatch(value)
            return None if found is None else value[:55].decode()
    return None


def _id_of(headers: Iterable[tuple[bytes, bytes]]) -> str:
    for name, value in headers:
        if name == REQUEST_ID:
            text = value.decode("latin-1")
            return (
                text
                if len(text) <= LONGEST and text.isascii() and text.isprintable() and text.split() == [text]
                else new_id()
            )
    return new_id()
