"""A client that takes nothing of its response loses its connection."""

import asyncio
import gc
import json
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import numpy as np
import pytest
from serve_lab import TIMEOUT, X, Y, request_of

from callboard.serve import App, EdgeLimits, Tls, listening
from callboard.serve.figures import Figures
from callboard.serve.http import bounded

INFER = "/v2/models/large/infer"
COUNT = 4 << 20
"""Numbers of a response: 16 MiB, more than the kernel keeps for both ends of a connection."""

needs_option = pytest.mark.skipif(bounded.USER_TIMEOUT is None, reason="this system has no TCP_USER_TIMEOUT")


class Told(Figures):
    """Figures that tell of a stall."""

    def __init__(self) -> None:
        super().__init__()
        self.came = asyncio.Event()

    def stalled(self) -> None:
        super().stalled()
        self.came.set()


def app_of(send_timeout: float) -> tuple[App, Told]:
    app = App(limits=EdgeLimits(send_timeout=send_timeout))
    app.figures = told = Told()
    app.add_model("large", lambda x: np.zeros(COUNT, np.float32), inputs=X, outputs=Y)
    return app, told


def asked() -> bytes:
    """The request, whose response is raw data."""
    body = json.dumps(request_of([1.0], outputs=[{"name": "y", "parameters": {"binary_data": True}}])).encode()
    return b"POST %s HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%s" % (INFER.encode(), len(body), body)


@asynccontextmanager
async def connection(
    url: str, context: ssl.SSLContext | None = None
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A connection whose client stops to receive as soon as some KiB were not read."""
    port = httpx.URL(url).port
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1024, ssl=context)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


def transports() -> list[Any]:
    """The transports of this process that are open."""
    found: list[Any] = [each for each in gc.get_objects() if issubclass(type(each), asyncio.Transport)]
    return [each for each in found if not each.is_closing()]


def buffered() -> int:
    """Bytes that transports of this process hold."""
    return sum(each.get_write_buffer_size() for each in transports())


@needs_option
@pytest.mark.parametrize("tls", [False, True])
async def test_a_client_that_takes_nothing(tls: bool, request: pytest.FixtureRequest) -> None:
    files: Tls | None = request.getfixturevalue("certificate") if tls else None
    context = ssl.create_default_context(cafile=str(files.certificate)) if files else None
    app, told = app_of(0.05)
    async with (
        asyncio.timeout(TIMEOUT),
        listening(app, port=0, max_connections=1, tls=files) as url,
        connection(url, context) as (reader, writer),
    ):
        writer.write(asked())
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        await told.came.wait()
        assert buffered() == 0
        async with httpx.AsyncClient(base_url=url, verify=context or True) as other:  # in place of the first
            page = await other.get("/metrics")
            assert "callboard_http_connections_stalled_total 1" in page.text
        with pytest.raises(ConnectionError):
            await reader.read()


@needs_option
@pytest.mark.parametrize(
    "seconds, milliseconds", [(60.0, 60_000), (1e-6, 1), (1e9, 2**31 - 1)], ids=["usual", "least", "most"]
)
async def test_each_connection_has_the_limit(seconds: float, milliseconds: int) -> None:
    app, _ = app_of(seconds)
    async with asyncio.timeout(TIMEOUT), listening(app, port=0) as url, connection(url) as (reader, writer):
        writer.write(b"GET /v2 HTTP/1.1\r\nHost: a\r\n\r\n")
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        port = httpx.URL(url).port
        accepted = [each for each in transports() if each.get_extra_info("sockname")[1] == port]
        limits = [
            each.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, bounded.USER_TIMEOUT) for each in accepted
        ]
    assert limits == [milliseconds]


async def test_a_client_that_reads_keeps_its_connection() -> None:
    app, told = app_of(60.0)
    async with asyncio.timeout(TIMEOUT), listening(app, port=0) as url, connection(url) as (reader, writer):
        for _ in range(2):
            writer.write(asked())
            head = await reader.readuntil(b"\r\n\r\n")
            length = next(int(line[15:]) for line in head.split(b"\r\n") if line.startswith(b"content-length:"))
            assert length > 4 * COUNT
            while length > 0:
                length -= len(await reader.read(min(length, 1 << 20)))
    assert told.stalls == 0


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("inf")])
def test_a_limit_that_does_not_fit(seconds: float) -> None:
    with pytest.raises(ValueError, match="send_timeout must be positive"):
        EdgeLimits(send_timeout=seconds)
