"""Heads of requests: bounds of their bytes, headers and seconds; requests to upgrade the connection are ignored.

uvicorn's parser in C keeps a head of any size, before the application sees the request.
"""

import asyncio
import logging
from typing import Any

from callboard.serve.http.noted import new_id

__all__ = ["MAX_HEAD", "MAX_HEADERS", "bounded_heads"]

MAX_HEAD = 64 * 1024
"""Bytes of a request line and its headers at most; beyond that the status is 431."""
MAX_HEADERS = 128
"""Headers of a request at most; beyond that the status is 431."""
MAX_PIPELINED = 64
"""Requests that wait for the response to an earlier one of their connection at most; it ends after those."""
OVERHEAD = 16
"""Bytes of framing per byte of a chunked body at most, beyond :data:`MAX_HEAD`. Between two bytes of a body, and behind
the last one, there are :data:`MAX_HEAD` bytes at most: an extension of a chunk, trailers."""

LINGER = 1.0
"""Seconds in which a client that was refused can still send; what it sends is discarded."""

_log = logging.getLogger("callboard.serve")

REASONS = {
    400: b"Bad Request",
    408: b"Request Timeout",
    431: b"Request Header Fields Too Large",
}


def bounded_heads(base: Any, head_timeout: float) -> Any:
    """A protocol of uvicorn with bounds of the head.

    Args:
        base: uvicorn's protocol over httptools. That over h11 bounds the bytes of a head by itself.
        head_timeout: Seconds from the first byte of a head to its end at most; then 408. Also for a connection that
            sends nothing.
    """
    if not hasattr(base, "on_headers_complete"):
        return base

    class BoundedHeads(base):  # type: ignore[misc]
        _in_head = True
        _seen = 0  # bytes since the head, or the body, began
        _body = 0
        _framing = 0  # bytes since the last one of the body
        _headers = 0
        _refused = False
        _timer: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:
            self.parser: Any = _Parser(self)
            super().connection_made(transport)
            self._wait_for_head()

        def connection_lost(self, exc: Exception | None) -> None:
            self._stop_waiting()
            super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            if self._refused:
                return
            self._seen += len(data)
            self._framing += len(data)
            super().data_received(data)
            if self._refused:
                return
            if self._in_head:
                if self._seen > MAX_HEAD:
                    self._refuse(431, f"the head of the request is longer than {MAX_HEAD} bytes")
                elif self._seen and self._timer is None:
                    self._wait_for_head()
            elif self._seen > OVERHEAD * self._body + 2 * MAX_HEAD + len(data):
                self._refuse(400, "the body's chunks have more framing than data")
            elif self._framing > MAX_HEAD:
                self._refuse(400, f"an extension of a chunk or the trailers are longer than {MAX_HEAD} bytes")

        @property
        def has_begun(self) -> bool:
            """A part of a head has come."""
            return self._in_head and self._seen > 0

        # -- what the parser finds -------------------------------------------------------------------------------------

        def on_message_begin(self) -> None:
            self._in_head = True
            self._headers = 0
            super().on_message_begin()

        def on_header(self, name: bytes, value: bytes) -> None:
            self._headers += 1
            if self._headers <= MAX_HEADERS:
                super().on_header(name, value)

        def on_headers_complete(self) -> None:
            self._in_head = False
            self._stop_waiting()
            if self._headers > MAX_HEADERS:
                self._refuse(431, f"the request has more than {MAX_HEADERS} headers")
            elif self._seen > MAX_HEAD and len(self.url) + sum(map(_length, self.headers)) > MAX_HEAD:
                self._refuse(431, f"the head of the request is longer than {MAX_HEAD} bytes")
            elif len(self.pipeline) >= MAX_PIPELINED:
                self._refuse(400, f"more than {MAX_PIPELINED} requests were sent ahead of their responses")
            if self.parser.reads_again:
                return
            if not self._refused:
                super().on_headers_complete()
            self._seen = self._body = self._framing = 0

        def on_body(self, body: bytes) -> None:
            self._body += len(body)
            self._framing = 0
            if not self._refused:
                super().on_body(body)

        def on_message_complete(self) -> None:
            self._in_head = True
            if self.parser.reads_again:
                return
            self._seen = 0
            if not self._refused:
                super().on_message_complete()

        # -- refusals --------------------------------------------------------------------------------------------------

        def send_400_response(self, msg: str) -> None:
            self._refuse(400, msg)

        def _wait_for_head(self) -> None:
            self._timer = self.loop.call_later(head_timeout, self._too_late)

        def _stop_waiting(self) -> None:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

        def _too_late(self) -> None:
            self._timer = None
            if self._in_head and not self._refused and (self._seen or self.cycle is None):
                self._refuse(408, f"the head of the request did not arrive within {head_timeout:g} s")

        def _refuse(self, status: int, why: str) -> None:
            if self._refused:
                return
            self._refused = True
            self._stop_waiting()
            _log.debug("a connection is refused: %d %s", status, why)
            if self.transport.is_closing():
                return
            cycle = self.cycle
            if cycle is not None and not cycle.response_complete:
                if self._in_head or self.pipeline or cycle.response_started:  # nothing is written into other responses
                    cycle.keep_alive = False  # the last response ends the connection
                    return
                cycle.disconnected = True  # the application sends nothing any more
                cycle.message_event.set()
            body = b'{"error":"%s"}' % why.encode()
            head = b"HTTP/1.1 %d %s\r\ncontent-type: application/json\r\n" % (status, REASONS[status])
            head += b"x-request-id: %s\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % (
                new_id().encode(),
                len(body),
            )
            self.transport.write(head + body)
            if not self.transport.can_write_eof():
                self.transport.close()
                return
            # Closed with unread data, a connection is reset, and the client may not see the response.
            self.transport.write_eof()
            self.loop.call_later(LINGER, self.transport.close)

    return BoundedHeads


def _length(header: tuple[bytes, bytes]) -> int:
    return len(header[0]) + len(header[1])


class _Parser:
    """httptools' parser, for which a request to upgrade the connection is a request like others.

    A server may ignore an upgrade (RFC 9110, 7.8), as this one does each; curl and Java's client ask for one to HTTP/2.
    But httptools takes what follows such a head for the other protocol, and so skips the body. The head is therefore
    read twice, the second time without the upgrade. It has the methods of ``HttpRequestParser`` that uvicorn calls.

    Args:
        protocol: Gets the parser's calls, and has the ``url`` and the ``headers`` that they gave.
    """

    def __init__(self, protocol: Any) -> None:
        import httptools  # uvicorn's protocol over h11 does without

        self._httptools: Any = httptools
        self._protocol = protocol
        self._begin()

    @property
    def reads_again(self) -> bool:
        """The head that is complete asks for an upgrade, and will be read again."""
        return bool(self.should_upgrade()) and self.get_method() != b"CONNECT"  # which is an upgrade by itself

    def feed_data(self, data: bytes) -> None:
        """Parse what came.

        Raises:
            HttpParserError: It is no HTTP.
            HttpParserUpgrade: A request has the method CONNECT.
        """
        while True:
            try:
                self._parser.feed_data(data)
                return
            except self._httptools.HttpParserUpgrade as e:
                if not self.reads_again:
                    raise
                data = self._head() + data[e.args[0] :]
            self._begin()

    def _begin(self) -> None:
        parser = self._parser = self._httptools.HttpRequestParser(self._protocol)
        parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn does, for a pipeline
        self.should_upgrade = parser.should_upgrade
        self.should_keep_alive = parser.should_keep_alive
        self.get_method = parser.get_method
        self.get_http_version = parser.get_http_version

    def _head(self) -> bytes:
        line = b"%b %b HTTP/%b" % (self.get_method(), self._protocol.url, self.get_http_version().encode())
        fields = [b"%b: %b" % field for field in self._protocol.headers if field[0] != b"upgrade"]
        return b"\r\n".join([line, *fields, b"", b""])
