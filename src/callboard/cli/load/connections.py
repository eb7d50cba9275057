"""HTTP/1.1 connections that are kept and used again, by asyncio and h11."""

import asyncio
import ssl
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import SplitResult, urlsplit

from callboard.serve.errors import needs_extra

__all__ = ["Connections", "Response"]

CHUNK = 1 << 16
AGENT = "callboard-load"


class Response:
    """A response: status and body."""

    def __init__(self, status: int, body: bytes) -> None:
        self.status = status
        self.body = body


class Connections:
    """Connections to one server; as many as requests are open at once, up to a bound.

    Args:
        url: URL of the server: scheme, host, port and a path that is prepended to others.
        headers: Headers of each request.
        timeout: Seconds that a request may take, with the time until there is a connection for it.
        most: Connections at once.
        verify: Check the server's certificate.

    Raises:
        ValueError: It is not a URL of HTTP.
        BackendUnavailable: h11 is not installed (extra ``serve``).
    """

    def __init__(
        self, url: str, headers: Mapping[str, str], *, timeout: float, most: int = 1024, verify: bool = True
    ) -> None:
        with needs_extra():
            import h11
        self._h11: Any = h11
        self._parts = _checked(url)
        self._host = self._parts.hostname or ""
        self._headers = {"host": self._parts.netloc.rpartition("@")[2], "user-agent": AGENT, **headers}
        self._timeout = timeout
        self._places = asyncio.Semaphore(most)
        self._idle: list[_Connection] = []
        self._ssl = None
        if self._parts.scheme == "https":
            self._ssl = ssl.create_default_context()
            if not verify:
                self._ssl.check_hostname = False
                self._ssl.verify_mode = ssl.CERT_NONE

    @property
    def address(self) -> str:
        """Host and port of the server, without credentials."""
        return self._headers["host"]

    async def request(
        self, method: str, path: str, body: bytes = b"", came: Callable[[bytes], None] | None = None, **headers: str
    ) -> Response:
        """Send a request and read its response.

        Args:
            method, path, body, headers: Of the request.
            came: Called with the parts of the response's body when they come.

        Raises:
            TimeoutError: It took too long; the connection was closed.
            OSError: There is no connection, or it was lost.
            ValueError: The response is not valid HTTP.
        """
        async with asyncio.timeout(self._timeout), self._places:
            connection = self._idle.pop() if self._idle else await self._connect()
            try:
                found = await connection.exchange(
                    method, self._parts.path.rstrip("/") + path, body, {**self._headers, **headers}, came
                )
            except BaseException as e:  # cancelled, too: later data would not be this connection's next response
                connection.close()
                if isinstance(e, self._h11.ProtocolError):
                    raise ValueError(f"{self._parts.netloc} does not speak HTTP/1.1: {e}") from e
                raise
            if connection.reusable:
                self._idle.append(connection)
            else:
                connection.close()
            return found

    async def _connect(self) -> "_Connection":
        port = self._parts.port or (443 if self._ssl else 80)
        reader, writer = await asyncio.open_connection(self._host, port, ssl=self._ssl)
        return _Connection(self._h11, reader, writer)

    async def close(self) -> None:
        """Close idle connections."""
        for connection in self._idle:
            connection.close()
        self._idle.clear()


class _Connection:
    def __init__(self, h11: Any, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._h11 = h11
        self._reader, self._writer = reader, writer
        self._state = h11.Connection(h11.CLIENT)

    @property
    def reusable(self) -> bool:
        """True if another request can be sent; prepares for it."""
        if self._state.our_state is not self._h11.DONE or self._state.their_state is not self._h11.DONE:
            return False
        self._state.start_next_cycle()
        return True

    async def exchange(
        self,
        method: str,
        target: str,
        body: bytes,
        headers: Mapping[str, str],
        came: Callable[[bytes], None] | None = None,
    ) -> Response:
        h11, state = self._h11, self._state
        fields = [*headers.items(), ("content-length", str(len(body)))]
        self._writer.write(
            state.send(h11.Request(method=method, target=target, headers=fields))
            + (state.send(h11.Data(data=body)) if body else b"")
            + state.send(h11.EndOfMessage())
        )
        status, parts = 0, []
        while True:
            event = state.next_event()
            if event is h11.NEED_DATA:
                data = await self._reader.read(CHUNK)
                if not data and state.their_state is h11.SEND_RESPONSE:
                    raise ConnectionResetError("the server closed the connection without a response")
                state.receive_data(data)
            elif isinstance(event, h11.Response):
                status = event.status_code
            elif isinstance(event, h11.Data):
                parts.append(bytes(event.data))
                if came is not None:
                    came(parts[-1])
            elif isinstance(event, h11.EndOfMessage):
                return Response(status, b"".join(parts))
            elif isinstance(event, h11.ConnectionClosed):
                raise ConnectionResetError("the server closed the connection")

    def close(self) -> None:
        self._writer.close()


def _checked(url: str) -> SplitResult:
    parts = urlsplit(url if "//" in url else f"http://{url}")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"{url!r} is not a URL of a server; give one such as http://127.0.0.1:8000")
    return parts
