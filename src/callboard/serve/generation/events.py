"""``Events``: a response in parts (server-sent events), and how it ends in an error."""

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any

import msgspec
from starlette.types import Send

from callboard.serve.errors import Refusal, code_of

__all__ = ["Events", "error_event", "event", "events_of"]


def event(content: Any) -> bytes:
    """A server-sent event of a value, as JSON."""
    return b"data: " + msgspec.json.encode(content) + b"\n\n"


def error_event(error: Exception, refusal: Refusal) -> bytes:
    """The last event of a stream of OpenAI's API that fails; ``code`` is that of :func:`code_of`."""
    kind = "invalid_request_error" if refusal.status < 500 else "server_error"
    content = {"message": refusal.reason, "type": kind, "param": None, "code": code_of(error)}
    return event({"error": {**content, "status": refusal.status}})


class Events:
    """A streamed response. Its first event exists: an earlier failure is an error response.

    Args:
        first: The first event.
        rest: The others.
        failed: Makes the last event of a stream that fails.
    """

    status = 200

    def __init__(
        self, first: bytes, rest: AsyncGenerator[bytes, None], failed: Callable[[Exception, Refusal], bytes]
    ) -> None:
        self._first = first
        self._rest = rest
        self._failed = failed

    async def send(self, send: Send, refused: Callable[[Exception], Refusal]) -> None:
        """Send all of it, each event when it is made, and no faster than the client reads.

        Args:
            send: Of ASGI.
            refused: The refusal of an error.
        """
        headers = [
            (b"content-type", b"text/event-stream; charset=utf-8"),
            (b"cache-control", b"no-cache"),
            (b"x-accel-buffering", b"no"),  # for proxies that would collect events
        ]
        async with aclosing(self._rest):
            await send({"type": "http.response.start", "status": self.status, "headers": headers})
            await send({"type": "http.response.body", "body": self._first, "more_body": True})
            try:
                async for each in self._rest:
                    await send({"type": "http.response.body", "body": each, "more_body": True})
            except Exception as e:  # any exception of a model becomes an event for the client
                await send({"type": "http.response.body", "body": self._failed(e, refused(e)), "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    async def close(self) -> None:
        """It is not sent: end its source."""
        await self._rest.aclose()


async def events_of(
    source: AsyncGenerator[bytes, None], failed: Callable[[Exception, Refusal], bytes] = error_event
) -> Events:
    """The response, once its first event is available.

    Raises:
        Exception: Raised by ``source`` before that.
    """
    try:
        first = await anext(source)
    except BaseException:  # a client that leaves, too
        await source.aclose()
        raise
    return Events(first, source, failed)
