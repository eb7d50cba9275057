"""``Endpoint``: the common part of each route: rights, body, limits, disconnects, errors, figures."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import Any

import msgspec
from starlette.types import Receive, Scope, Send

from callboard.patterns.requests.errors import ServerStopped
from callboard.serve.app import App
from callboard.serve.encoding.flat import check_length
from callboard.serve.encoding.messages import HEADER_LENGTH
from callboard.serve.errors import BadRequest, HttpError, NotReady, Refusal
from callboard.serve.generation.events import Events
from callboard.serve.http.compression import compressed, decompressed, off_loop
from callboard.serve.http.leaving import ClientLeft, cancel_on_disconnect
from callboard.serve.http.noted import Noted, noted
from callboard.serve.http.request import Request, receive_soon
from callboard.serve.http.rights import Right, right_of

__all__ = ["Body", "Endpoint", "Handler", "decode_json", "error_response"]

CLIENT_LEFT = 499
AT_ONCE = 1 << 20
"""Bytes of a response that are sent at once."""
ALIGNMENT = 16
"""Bytes: as Python aligns a ``bytearray``."""
DIGITS = 18
"""Of a length in a header at most: Python refuses to read thousands of them."""


class Body:
    """A response: its bytes and headers.

    Args:
        content: Parts that are joined, or a value to encode as JSON.
        headers: Headers besides the content type, which is JSON unless they set it.
        status: HTTP status.
    """

    def __init__(self, content: Any, headers: Mapping[str, str] | None = None, status: int = 200) -> None:
        self._parts: list[bytes] = [msgspec.json.encode(content)] if headers is None else _few(content)
        self.headers = {"content-type": "application/json"} if headers is None else dict(headers)
        self.status = status

    @property
    def bytes(self) -> bytes:
        """All of it."""
        return b"".join(self._parts)

    async def compress(self, accepted: str) -> None:
        """Compress the bytes as a client with this ``Accept-Encoding`` takes them."""
        self._parts, encoding = await compressed(self._parts, accepted)
        if encoding is not None:
            self.headers["content-encoding"] = encoding

    async def send(self, send: Send) -> None:
        """Send it whole."""
        headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in self.headers.items()]
        headers.append((b"content-length", b"%d" % sum(map(len, self._parts))))
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        *others, last = self._parts
        for part in others:
            await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body", "body": last})


def _few(parts: Iterable[bytes | memoryview]) -> list[bytes]:
    """The same bytes in parts of some :data:`AT_ONCE`: a server copies what the socket does not take."""
    found: list[bytes] = []
    short: list[bytes | memoryview] = []
    size = 0
    for part in parts:
        for at in range(0, len(part), AT_ONCE) if len(part) > AT_ONCE else (0,):
            piece = part[at : at + AT_ONCE]
            short.append(piece)
            size += len(piece)
            if size >= AT_ONCE:
                found.append(b"".join(short))
                short, size = [], 0
    return [*found, b"".join(short)] if short or not found else found


Handler = Callable[[App, Request, memoryview], Awaitable[Body | Events]]


class Endpoint:
    """A route's ASGI application.

    Args:
        app: App that the route belongs to.
        route: The pattern of its URL, for the figures.
        handler: Makes the response; errors that it raises become responses.
        watched: The handler may take long: a client that leaves cancels it. True for all of POST.
        public: True if no right is required.
        method: Method of the requests.
        needed: Rights, one of which a request needs; None: those of the route.
    """

    def __init__(
        self,
        app: App,
        route: str,
        handler: Handler,
        *,
        watched: bool = False,
        public: bool = False,
        method: str = "GET",
        needed: frozenset[Right] | None = None,
    ) -> None:
        self._app = app
        self._route = route
        self._handler = handler
        self.watched = watched
        self._public = public
        self._needed = right_of(method, route) if needed is None else needed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        figures = self._app.figures
        started = time.perf_counter()
        figures.open += 1
        status = 500
        request = Request(scope, receive)
        about = noted.get() or Noted(scope)
        about.route = self._route
        try:
            response = await self._response(request, about)
            status = response.status
            if isinstance(response, Events):
                await cancel_on_disconnect(response.send(send, partial(self._refused, about=about)), request)
            else:
                await response.send(send)
        except ClientLeft:
            status = about.status = CLIENT_LEFT
            self._app.reports.left(about)
        finally:
            self._app.bodies -= request.held
            figures.open -= 1
            figures.responded(self._route, status, time.perf_counter() - started)

    async def _response(self, request: Request, about: Noted) -> Body | Events:
        try:
            if not self._public:
                self._app.check_right(self._needed, request.headers)
            body = await self._body(request)
            work = self._handler(self._app, request, body)
            found = await (cancel_on_disconnect(work, request) if self.watched else work)
            if isinstance(found, Body) and b"accept-encoding" in request.headers.raw:
                await found.compress(request.headers["accept-encoding"])
        except ClientLeft:
            raise
        except asyncio.CancelledError:
            if not self._app.stopped or (task := asyncio.current_task()) is None or task.uncancel() > 0:
                raise
            error = NotReady(f"{self._app.name} stopped before the request was done")
            return error_response(request.path, self._refused(error, about))
        except Exception as e:  # any exception of a model becomes a response
            return error_response(request.path, self._refused(e, about))
        return found

    def _refused(self, error: BaseException, about: Noted) -> Refusal:
        if isinstance(error, ServerStopped):
            error = self._app.why_stopped(about.model, about.version)
        return self._app.reports.refused(error, about, public=self._public)

    async def _body(self, request: Request) -> memoryview:
        """The body, in memory where raw data that follow its JSON are aligned."""
        limits, fields = self._app.limits, request.headers
        declared = fields.raw.get(b"content-length", b"0")
        if declared.isdigit() and (len(declared) > DIGITS or int(declared) > limits.max_body):
            raise _too_long(limits.max_body)
        ahead = _padding(fields[HEADER_LENGTH]) if HEADER_LENGTH.encode() in fields.raw else 0
        body = bytearray(ahead)
        until = time.perf_counter() + limits.body_timeout
        more = True
        while more:
            try:
                message = await receive_soon(request.receive, until - time.perf_counter())
            except TimeoutError as e:
                raise HttpError(f"the body did not arrive within {limits.body_timeout:g} s", 408) from e
            if message["type"] == "http.disconnect":
                raise ClientLeft
            came = message.get("body", b"")
            body += came
            self._hold(request, len(came))
            if len(body) - ahead > limits.max_body:
                raise _too_long(limits.max_body)
            more = message.get("more_body", False)
        whole = memoryview(body)[ahead:]
        if b"content-encoding" not in fields.raw:
            return whole
        return await decompressed(whole, fields["content-encoding"], limits.max_body, partial(self._hold, request))

    def _hold(self, request: Request, size: int) -> None:
        self._app.bodies += size
        request.held += size
        limits = self._app.limits
        most = max(limits.max_bodies, limits.max_body)
        if self._app.bodies > most:
            raise NotReady(f"the bodies of open requests have more than {most} bytes")


def _padding(header_length: str) -> int:
    """Bytes to prepend to a body, so that the data after its header is aligned."""
    return -int(header_length[-DIGITS:]) % ALIGNMENT if header_length.isascii() and header_length.isdigit() else 0


def _too_long(limit: int) -> HttpError:
    return HttpError(f"the body is longer than {limit} bytes", 413)


def error_response(path: str, refusal: Refusal) -> Body:
    """The response of an error, in the words of the protocol that the path belongs to."""
    headers = {"content-type": "application/json"}
    if refusal.retry_after is not None:
        headers["retry-after"] = str(refusal.retry_after)
    if refusal.status == 401:
        headers["www-authenticate"] = "Bearer"
    if refusal.status in (408, 413):  # the rest of the body is not read
        headers["connection"] = "close"
    content: Any = refusal.reason
    if path.startswith("/v1/"):
        kind = "invalid_request_error" if refusal.status < 500 else "server_error"
        content = {"message": refusal.reason, "type": kind, "param": None, "code": None}
    return Body([msgspec.json.encode({"error": content})], headers, refusal.status)


async def decode_json(body: memoryview, kind: Any) -> Any:
    """A body as a value of this type; a long one is read on a thread.

    Raises:
        BadRequest: It is not.
        HttpError: It is too long to be read at once (413).
    """

    def read() -> Any:
        check_length(body, "send less in one request")
        try:
            return msgspec.json.decode(body, type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as e:
            raise BadRequest(f"the body cannot be read: {e}") from e

    return await off_loop(len(body), read)
