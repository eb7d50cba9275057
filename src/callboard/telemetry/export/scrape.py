"""``Scrape``: ``GET /metrics`` on a port of its own, for applications that serve nothing else."""

import asyncio
import contextlib
import logging
import socket
from typing import TYPE_CHECKING

from callboard.events.forking import after_fork
from callboard.telemetry.export.prometheus import CONTENT_TYPE, Text
from callboard.telemetry.export.users import Users
from callboard.telemetry.observed import all_groups

if TYPE_CHECKING:
    from callboard.telemetry.telemetry import Telemetry

__all__ = ["Scrape", "address_of"]

log = logging.getLogger("callboard.telemetry")

HEAD = 8192
"""Most bytes of a request."""
PATIENCE = 5.0
"""Seconds that a client gets for its request, and for taking the response."""
CLIENTS = 16
"""Most connections at a time; for a further one, the oldest that has not asked yet is closed."""


def address_of(where: int | str) -> tuple[str, int]:
    """Host and port: of ``9464`` on the loopback, or of ``"0.0.0.0:9464"``.

    Raises:
        ValueError: It is neither.
    """
    host, _, port = str(where).rpartition(":")
    if not port.isdecimal() or int(port) > 65535:
        raise ValueError(f"prometheus = {where!r} is no port and no host:port, such as 9464 or '0.0.0.0:9464'")
    return host.strip("[]") or "127.0.0.1", int(port)


class Scrape:
    """Listens at once, and serves on the running loop; further systems of this process may share it.

    Args:
        telemetry: Where the metrics come from.
        where: See :func:`address_of`; port 0: any free port.

    Attributes:
        port: The port.

    Raises:
        OSError: The address is in use, or not of this machine.
    """

    def __init__(self, telemetry: "Telemetry", where: int | str) -> None:
        host, port = address_of(where)
        self._socket = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
        self.port: int = self._socket.getsockname()[1]
        self._text = Text()
        self._open = 0
        self._silent: dict[asyncio.StreamWriter, None] = {}  # the oldest first
        self._server: asyncio.Server | None = None
        self.users = Users(lambda each: each.run(self._serve()), self._pause, self._socket.close)
        self.users.add(telemetry)

    @classmethod
    def shared(cls, telemetry: "Telemetry", where: int | str) -> None:
        """Have an address answer as long as one of the systems lives that have asked for it."""
        address = address_of(where)
        found = _shared.get(address)
        if found is None or found.users.ended or not address[1]:
            _shared[address] = cls(telemetry, where)
        else:
            found.users.add(telemetry)

    async def _serve(self) -> None:
        # A copy: the end of the server closes it, and the next system's listens on.
        self._server = await asyncio.start_server(self._client, sock=self._socket.dup(), limit=HEAD)

    def _pause(self) -> None:
        if self._server is not None:
            self._server.close()

    async def text(self) -> str:
        """The metrics of all observed systems of this process now, in Prometheus' text format."""
        return self._text.render(await all_groups())

    async def _client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open += 1
        self._silent[writer] = None
        if self._open > CLIENTS:
            next(iter(self._silent)).close()
        try:
            if not writer.is_closing():
                with contextlib.suppress(TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
                    async with asyncio.timeout(PATIENCE):
                        head = await reader.readuntil(b"\r\n\r\n")
                    self._silent.pop(writer, None)
                    writer.write(await self._response(head))
                    async with asyncio.timeout(PATIENCE):
                        await writer.drain()
        finally:
            self._open -= 1
            self._silent.pop(writer, None)
            writer.close()

    async def _response(self, head: bytes) -> bytes:
        method, _, rest = head.partition(b"\r\n")[0].partition(b" ")
        path = rest.partition(b" ")[0].partition(b"?")[0]
        if path != b"/metrics":
            return _message("404 Not Found", b"see /metrics\n")
        if method not in (b"GET", b"HEAD"):
            return _message("405 Method Not Allowed", b"GET only\n", "Allow: GET, HEAD\r\n")
        try:
            body = (await self.text()).encode()
        except Exception:  # of whatever was observed: the scraper is told
            log.exception("the metrics could not be collected")
            return _message("500 Internal Server Error", b"the metrics could not be collected: see the log\n")
        return _message("200 OK", body if method == b"GET" else b"", f"Content-Type: {CONTENT_TYPE}\r\n", len(body))


_shared: dict[tuple[str, int], Scrape] = {}
after_fork(_shared.clear)


def _message(status: str, body: bytes, headers: str = "", length: int | None = None) -> bytes:
    n = len(body) if length is None else length
    return f"HTTP/1.1 {status}\r\n{headers}Content-Length: {n}\r\nConnection: close\r\n\r\n".encode() + body
