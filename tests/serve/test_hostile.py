"""Input that means harm, over a real socket: each connection ends, and the next request is answered as ever."""

import asyncio
import contextlib
import json
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from serve_lab import TIMEOUT, Held, X, Y, request_of, small_app, until

import callboard as cb
from callboard.serve import App, EdgeLimits, listening

INFER = "/v2/models/double/infer"
BODY = json.dumps(request_of([1.0, 2.0])).encode()
LIMITS = EdgeLimits(max_body=4096, body_timeout=0.05)
PATIENT = EdgeLimits(max_body=4096)
"""For requests that are whole, which a slow machine may take its time to read."""


def framed(body: bytes, *lines: str, length: int | None = None) -> bytes:
    declared = f"Content-Length: {len(body) if length is None else length}"
    return "\r\n".join([f"POST {INFER} HTTP/1.1", "Host: x", declared, *lines, "", ""]).encode() + body


@asynccontextmanager
async def server(limits: EdgeLimits = LIMITS) -> AsyncIterator[tuple[App, int]]:
    app = small_app(limits=limits)
    async with asyncio.timeout(TIMEOUT), listening(app, port=0) as url:
        tasks = len(asyncio.all_tasks())
        port = int(url.rpartition(":")[2])
        yield app, port
        while (status := (await exchange(port, framed(BODY)))[0]) == 408:  # on a slow machine
            assert limits is LIMITS
        assert status == 200  # it goes on as before
        await until(lambda: app.figures.open == 0)
        await until(lambda: len(asyncio.all_tasks()) <= tasks)


async def exchange(port: int, *parts: bytes, end: bool = False) -> tuple[int, bytes]:
    """Send parts and read the response: its status, 0 for none, and its body."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        with contextlib.suppress(ConnectionError):
            for part in parts:
                writer.write(part)
                await writer.drain()
            if end:
                writer.write_eof()
        head = b""
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            head = await reader.readuntil(b"\r\n\r\n")
            _, declared, length = head.lower().partition(b"content-length: ")
            body = await (reader.readexactly(int(length.split()[0])) if declared else reader.read())
            return int(head.split()[1]), body
        return int(head.split()[1]) if head else 0, b""
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


@pytest.mark.parametrize(
    "sent, statuses",
    [
        (b"\x00\xff\x00\xff\r\n\r\n", {400}),
        (b"GET\r\n\r\n", {400}),
        (b"POST / HTTP/9.9\r\n\r\n", {400, 404, 505}),
        (framed(BODY, "Content-Length: 7"), {400}),
        (framed(BODY, "bad header"), {400}),
        (framed(b"", "Transfer-Encoding: chunked", length=5) + b"zz\r\n", {0, 400}),
        (
            b"POST " + INFER.encode() + b" HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
            {0, 400, 408},
        ),
        (b"GET / HTTP/1.1\r\nHost: x\r\n" + b"x: " + b"y" * (1 << 18) + b"\r\n\r\n", {0, 400, 404, 431}),
        (b"GET /" + b"a" * (1 << 17) + b" HTTP/1.1\r\nHost: x\r\n\r\n", {0, 400, 404, 414, 431}),
        (framed(b"", length=-1), {400}),
        (framed(b"", length=1 << 62), {413}),
        (framed(b"x" * 5000), {413}),
    ],
    ids=range(12),
)
async def test_malformed_and_oversized(sent: bytes, statuses: set[int]) -> None:
    async with server(LIMITS if 408 in statuses else PATIENT) as (_, port):
        status, _ = await exchange(port, sent)
        assert status in statuses


@pytest.mark.parametrize("cut", [1, 20, len(framed(b"")) - 1, len(framed(BODY)) - 1])
async def test_a_client_that_is_cut_off(cut: int) -> None:
    async with server() as (app, port):
        status, _ = await exchange(port, framed(BODY)[:cut], end=True)
        assert status in (0, 400, 408)  # the last one if this process stood still, and the body was late before its end
        assert app.models["double"].stats().submitted == 0


async def test_a_body_that_comes_slowly_has_a_limit() -> None:
    async with server() as (app, port):
        status, body = await exchange(port, framed(BODY)[:-1])  # and nothing more
        assert (status, b"did not arrive within" in body) == (408, True)
        assert app.models["double"].stats().submitted == 0


async def test_a_response_that_is_not_read_holds_up_nothing_else() -> None:
    async with server(PATIENT) as (_, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1)
        for _ in range(50):  # pipelined, and no response is read
            writer.write(framed(BODY))
        assert (await exchange(port, framed(BODY)))[0] == 200
        writer.transport.abort()
        del reader


async def test_changed_bytes_never_end_in_500() -> None:
    chance = random.Random(7)
    async with server(PATIENT) as (app, port):
        seen = set()
        for _ in range(150):
            body = bytearray(BODY)
            for _ in range(chance.randint(1, 4)):
                at = chance.randrange(len(body))
                match chance.randrange(3):
                    case 0:
                        body[at] = chance.randrange(256)
                    case 1:
                        del body[at]
                    case 2:
                        body[at:at] = chance.choice([b'"', b"[", b"1e999", b"-", b"\\u0000", b"null,"])
            status, answer = await exchange(port, framed(bytes(body)))
            seen.add(status)
            assert status in (200, 400, 404, 413), answer
            assert "outputs" in (found := json.loads(answer)) or isinstance(found["error"], str)
        assert 400 in seen
        assert not any(status >= 500 for _, status in app.figures.responses)


@pytest.mark.parametrize("depth", [100, 100_000])
async def test_deep_nesting(depth: int) -> None:
    app = small_app()
    data = "[" * depth + "]" * depth
    body = f'{{"inputs": [{{"name": "x", "shape": [1], "datatype": "FP32", "data": {data}}}]}}'.encode()
    async with listening(app, port=0) as url, httpx.AsyncClient(base_url=url, timeout=TIMEOUT) as http:
        assert (await http.post(INFER, content=body)).status_code == 400
        assert (await http.post(INFER, content=BODY)).status_code == 200


async def test_three_times_as_many_requests_as_there_is_room_for() -> None:
    """Every request ends in its value or is told to come again; nothing waits beyond the bounds meanwhile."""
    held = Held()
    server = cb.DynamicBatchingServer(lambda items: batch(held, items), max_batch=4, max_queue=8, executor="loop")
    app = App()
    app.add_model("double", server, inputs=X, outputs=Y)

    async def batch(held: Held, items: list[Any]) -> list[Any]:
        await held(items)
        return [2 * item for item in items]

    most = 0
    async with listening(app, port=0) as url, httpx.AsyncClient(base_url=url, timeout=TIMEOUT) as http:

        async def ask(n: int) -> int:
            found = await http.post(INFER, json=request_of([n]))
            if found.status_code == 200:
                assert found.json()["outputs"][0]["data"] == [2.0 * n]
            else:
                assert int(found.headers["retry-after"]) >= 1
            return found.status_code

        asking = [asyncio.create_task(ask(n)) for n in range(36)]
        async with asyncio.timeout(TIMEOUT):
            await until(lambda: server.stats().rejected >= 36 - 8 - 4)
            most = max(most, server.stats().queued)
            held.go.set()
            ends = [await each for each in asking]
    stats = server.stats()
    assert set(ends) == {200, 429}
    assert most <= 8
    assert stats.completed == ends.count(200) >= 8
    assert stats.rejected == ends.count(429)
    assert stats.submitted == 36
