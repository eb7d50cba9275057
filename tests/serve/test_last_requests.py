"""Requests that come while a server ends: they are answered, and their connections end with the response."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest
from serve_lab import TIMEOUT, Held, X, Y, client_of, request_of, small_app, until

from callboard.serve import App, EdgeLimits
from callboard.serve.http import listening
from callboard.serve.http.ending import Signals
from callboard.serve.http.listening import _run, _server
from callboard.serve.http.starting import Port

READY = b"GET /v2/health/ready HTTP/1.1\r\nHost: lab\r\n\r\n"
MODELS = b"GET /v2/models/double HTTP/1.1\r\nHost: lab\r\n\r\n"


@dataclass
class Running:
    """A server that runs on this loop."""

    app: App
    server: Any
    ending: Signals
    clients: "list[Client]" = field(default_factory=list)

    async def connect(self) -> "Client":
        host, port = self.server.url.removeprefix("http://").split(":")
        self.clients.append(Client(*await asyncio.open_connection(host, int(port))))
        return self.clients[-1]


@dataclass
class Client:
    """A connection."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def ask(self, request: bytes) -> tuple[int, bool]:
        """Send it; the status of the response, and whether the connection ends with it."""
        self.writer.write(request)
        return await self.answer()

    async def answer(self) -> tuple[int, bool]:
        head = (await self.reader.readuntil(b"\r\n\r\n")).lower()
        await self.reader.readexactly(int(head.partition(b"content-length: ")[2].partition(b"\r")[0]))
        ends = b"connection: close" in head
        if ends:
            assert await self.reader.read() == b""
        return int(head.split()[1]), ends


@asynccontextmanager
async def running(app: App) -> AsyncIterator[Running]:
    server, ending, accepting = _server(app, Port(port=0)), Signals(), asyncio.Event()
    async with asyncio.timeout(TIMEOUT):
        task = asyncio.create_task(_run(app, server, ending, accepting))
        await accepting.wait()
        found = Running(app, server, ending)
        try:
            yield found
        finally:
            ending.stop.set()
            await task
            for client in found.clients:
                client.writer.close()
                await client.writer.wait_closed()


async def test_open_connections_are_answered_after_the_signal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening, "LAST_REQUESTS", TIMEOUT)
    async with running(small_app()) as it:
        probe, client = await it.connect(), await it.connect()
        assert await probe.ask(READY) == (200, False)
        assert await client.ask(MODELS) == (200, False)
        it.ending.stop.set()
        await until(lambda: it.server.listener.fileno() < 0)  # no connection is accepted any more
        assert await probe.ask(READY) == (503, True)
        body = httpx.Request("POST", "http://lab/", json=request_of([1])).content
        head = b"POST /v2/models/double/infer HTTP/1.1\r\nHost: lab\r\nContent-Length: %d\r\n\r\n" % len(body)
        assert await client.ask(head + body) == (200, True)


async def test_a_request_that_has_begun_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening, "LAST_REQUESTS", 0.0)
    async with running(small_app()) as it:
        client, idle = await it.connect(), await it.connect()
        assert await idle.ask(MODELS) == (200, False)
        client.writer.write(MODELS[:-2])
        await until(lambda: any(each.has_begun for each in it.server.server_state.connections))
        it.ending.stop.set()
        assert await idle.reader.read() == b""  # closed: it has asked nothing
        assert await client.ask(MODELS[-2:]) == (200, True)


async def test_a_body_that_arrives_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening, "LAST_REQUESTS", 0.0)
    async with running(small_app()) as it:
        client, idle = await it.connect(), await it.connect()
        body = httpx.Request("POST", "http://lab/", json=request_of([1])).content
        head = b"POST /v2/models/double/infer HTTP/1.1\r\nHost: lab\r\nContent-Length: %d\r\n\r\n" % len(body)
        client.writer.write(head)
        await until(lambda: it.app.figures.open)
        assert await idle.ask(MODELS) == (200, False)
        it.ending.stop.set()
        assert await idle.reader.read() == b""
        assert await client.ask(body) == (200, True)


async def test_bytes_that_were_not_read_keep_a_connection_open() -> None:
    async with running(small_app()) as it:
        with socket.socket() as client:
            client.connect(it.server.listener.getsockname())
            await until(lambda: it.server.server_state.connections)
            (connection,) = it.server.server_state.connections
            client.send(MODELS)
            connection.shutdown()
            client.setblocking(False)
            assert (await asyncio.get_running_loop().sock_recv(client, 1 << 16)).startswith(b"HTTP/1.1 200 ")


async def test_connections_in_the_queue_are_accepted() -> None:
    async with running(small_app()) as it:
        with socket.socket() as client:
            client.connect(it.server.listener.getsockname())  # the loop does not run meanwhile
            (accepting,) = it.server._accept_queued()
            await accepting
            client.send(MODELS)
            client.setblocking(False)
            assert (await asyncio.get_running_loop().sock_recv(client, 1 << 16)).startswith(b"HTTP/1.1 200 ")


async def test_the_connections_of_responses_of_the_end_are_closed() -> None:
    held = Held()
    app = App("lab", limits=EdgeLimits(drain_timeout=0.01))
    app.add_model("double", held, inputs=X, outputs=Y)
    async with client_of(app) as http:
        asking = asyncio.create_task(http.post("/v2/models/double/infer", json=request_of([1])))
        await held.begun.get()
        await app.drain()
        late = await http.post("/v2/models/double/infer", json=request_of([1]))
        for found in (await asking, late, await http.get("/v2/health/ready")):
            assert (found.status_code, found.headers["connection"]) == (503, "close")
