"""Limits of connections: how many there are and have descriptors, and how long a client may take nothing.

Connections report when they are lost.
"""

import asyncio
import errno
import logging
import os
import select
import socket
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import msgspec
from uvicorn.protocols.http.auto import AutoHTTPProtocol

from callboard.serve.figures import Figures
from callboard.serve.http.heads import bounded_heads
from callboard.serve.http.leaving import CONNECTION
from callboard.serve.http.noted import Noted

__all__ = ["Descriptors", "bounded", "raise_limit"]

REFUSED_FOR = 5.0
"""Seconds until a refused connection that asks nothing is closed."""
USER_TIMEOUT: int | None = getattr(socket, "TCP_USER_TIMEOUT", None)
"""The socket option of RFC 5482; None where the system has none."""
LONGEST = 2**31 - 1
"""Milliseconds that the option takes at most."""
RESERVE = 64
"""Descriptors for other things than connections: devices, files, threads; half of the limit at most."""
AGAIN = 60.0
"""Seconds until the log names a shortage of descriptors again."""

_log = logging.getLogger("callboard.serve")


def bounded(most: int, head_timeout: float, send_timeout: float, figures: Figures) -> type[asyncio.Protocol]:
    """Uvicorn's protocol with limits of connections, and of the heads of their requests.

    A connection beyond ``most`` gets a 503 response and is closed, unless another client address has more connections:
    then an idle one of that address is closed for it. The kernel ends one whose client takes nothing of a
    response for ``send_timeout`` seconds; what was not sent is freed, and ``figures.stalls`` counts it. The event loop
    cannot measure that: a transport of TLS reports no bytes while the one below it is full, and a response that fits
    the kernel's buffer has left all transports.

    uvicorn's own ``limit_concurrency`` refuses requests on all connections as soon as there are that many, idle ones
    included: a client that opened many once, and keeps them, would keep all others from being served.
    """
    base: Any = bounded_heads(AutoHTTPProtocol, head_timeout)
    wait = min(max(1, round(send_timeout * 1e3)), LONGEST)

    class Bounded(base):  # type: ignore[misc]
        _lost = False
        _spared = False
        _on_lost: Callable[[], object] | None = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self.app_state: dict[str, Any] = self.app_state | {CONNECTION: self}  # uvicorn gives each request a copy
            connection: socket.socket = transport.get_extra_info("socket")
            if USER_TIMEOUT is not None and connection.family.name != "AF_UNIX":
                connection.setsockopt(socket.IPPROTO_TCP, USER_TIMEOUT, wait)
            if len(self.connections) > most and not _make_room(self, most):
                self.app = _refuse
                self.loop.call_later(REFUSED_FOR, transport.close)

        def connection_lost(self, exc: Exception | None) -> None:
            super().connection_lost(exc)
            self._lost = True
            if isinstance(exc, TimeoutError):
                figures.stalled()
                _log.info("a client took nothing of its response for %g s: its connection is closed", send_timeout)
            if self._on_lost is not None:
                self._on_lost()

        def shutdown(self) -> None:
            idle = _is_idle(self) and not self.transport.is_closing()
            if idle and not self._spared and (getattr(self, "has_begun", False) or _is_readable(self.transport)):
                self._spared = True  # a connection that is closed before it was read is reset
            else:
                super().shutdown()

        @property
        def arrives(self) -> bool:
            """A part of a request is to come: it is answered before the connection ends."""
            return not self.transport.is_closing() and (_is_idle(self) or self.cycle.more_body)

        def when_lost(self, call: Callable[[], object] | None) -> None:
            """See :class:`Connection`. Requests of a connection run one after the other."""
            self._on_lost = call
            if self._lost and call is not None:
                call()

    return Bounded


async def _refuse(scope: Any, receive: Any, send: Any) -> None:
    """Answer a request on a connection that is one too many, and close that."""
    about = Noted(scope)
    body = msgspec.json.encode({"error": f"there are too many connections; request {about.id}"})
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", b"%d" % len(body)),
        (b"connection", b"close"),
    ]
    answer = about.sending(send)
    await answer({"type": "http.response.start", "status": 503, "headers": headers})
    await answer({"type": "http.response.body", "body": body})
    about.end()


def _make_room(new: Any, most: int) -> bool:
    """Close an idle connection of the client address that has the most, if that is more than the new one's has."""
    there = [each for each in new.connections if not each.transport.is_closing()]
    if len(there) <= most:
        return True
    counts = Counter(map(_address, there))
    address, count = counts.most_common(1)[0]
    if count <= counts[_address(new)] + 1:
        return False
    idle = next((each for each in there if _address(each) == address and _is_idle(each)), None)
    if idle is not None:
        idle.transport.close()
    return idle is not None


def _is_readable(transport: Any) -> bool:
    """Bytes have come that the event loop has not read."""
    if not hasattr(select, "poll"):  # Windows
        return False
    poll = select.poll()
    poll.register(transport.get_extra_info("socket").fileno(), select.POLLIN)
    return bool(poll.poll(0))


def _address(connection: Any) -> str | None:
    return connection.client[0] if connection.client else None


def _is_idle(connection: Any) -> bool:
    return connection.cycle is None or bool(connection.cycle.response_complete)


def _limits() -> tuple[int, int]:
    """The soft and the hard limit of the process (``RLIMIT_NOFILE``)."""
    try:
        import resource
    except ImportError:  # Windows
        return sys.maxsize, sys.maxsize
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    infinite = resource.RLIM_INFINITY
    return sys.maxsize if soft == infinite else soft, sys.maxsize if hard == infinite else hard


def raise_limit(connections: int) -> None:
    """Raise the soft limit, as far as the hard one allows, so that it is enough for this many connections."""
    soft, hard = _limits()
    wanted = min(connections + RESERVE, hard)
    if wanted > soft:
        import resource

        with suppress(OSError, ValueError):  # the system's own limit is lower
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))


class Descriptors:
    """The file descriptors of the process.

    Args:
        figures: Count the shortages.
        listener: Any open descriptor.
    """

    def __init__(self, figures: Figures, listener: int) -> None:
        self._figures = figures
        self._listener = listener
        self._told = -AGAIN

    def bounded(self, connections: int) -> int:
        """The number of connections that the limit is enough for, this many at most."""
        soft, _ = _limits()
        most = min(connections, soft - min(RESERVE, soft // 2))
        if most < connections:
            _log.info(
                "max_connections is %d in place of %d: the process may have %d file descriptors (ulimit -n)",
                *(most, connections, soft),
            )
        return most

    def look(self) -> None:
        """Count and log if none is left: the event loop closes new connections then, and tells nothing of it."""
        try:
            os.close(os.dup(self._listener))
        except OSError as e:
            if e.errno not in (errno.EMFILE, errno.ENFILE):
                return
            self._figures.shortages += 1
            if time.monotonic() - self._told >= AGAIN:
                self._told = time.monotonic()
                _log.error(
                    "no file descriptor is left (%s): connections are closed without a response; "
                    "raise the limit (ulimit -n, which is %d), or lower max_connections",
                    *(e.strerror, _limits()[0]),
                )
