"""Cost of the serving edge: inference over HTTP, and a bare ASGI application on uvicorn that echoes bodies.

    python benchmarks/serving.py --json serving.json
    python benchmarks/serving.py --quick

The model returns what it gets, on the event loop, so all that is measured is HTTP and the edge. Small requests are JSON
with eight numbers, from clients in a closed loop with a connection each; the large one is 1 MB as raw bytes, both ways.
Client and server share a thread: figures are for comparison only. It uses no device.
"""

import argparse
import asyncio
import functools
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
import uvicorn
from _harness import Bar, arguments, interleave, ratios, spread, table, tell_bars
from _record import Record

from callboard.serve import App, Tensor, listening

PATH = "/v2/models/echo/infer"
MEGABYTE = 1 << 20
SMALL = json.dumps(
    {"inputs": [{"name": "x", "shape": [8], "datatype": "FP32", "data": [0.5] * 8}], "outputs": [{"name": "x"}]}
).encode()


def large() -> tuple[bytes, dict[str, str]]:
    """A request of 1 MB of raw data, and its headers."""
    parameters = {"binary_data_size": MEGABYTE}
    x = {"name": "x", "shape": [MEGABYTE // 4], "datatype": "FP32", "parameters": parameters}
    head = json.dumps({"inputs": [x], "parameters": {"binary_data_output": True}}).encode()
    return head + bytes(MEGABYTE), {"Inference-Header-Content-Length": str(len(head))}


@asynccontextmanager
async def edge() -> AsyncIterator[int]:
    """The port of an app."""

    async def echo(x: np.ndarray) -> np.ndarray:
        return x

    app = App()
    tensors = [Tensor("x", "FP32", [-1])]
    app.add_model("echo", echo, inputs=tensors, outputs=tensors, concurrency=64)
    async with listening(app, port=0) as url:
        yield int(url.rpartition(":")[2])


@asynccontextmanager
async def bare() -> AsyncIterator[int]:
    """The port of an ASGI application that sends back what it gets."""

    async def echo(scope: Any, receive: Any, send: Any) -> None:
        body, more = bytearray(), True
        while more:
            message = await receive()
            body += message["body"]
            more = message["more_body"]
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": bytes(body)})

    config = uvicorn.Config(echo, port=0, lifespan="off", log_config=None, access_log=False)
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server.serve())
    while not server.started:  # noqa: ASYNC110 -- uvicorn has no event for it
        await asyncio.sleep(0.01)
    yield server.servers[0].sockets[0].getsockname()[1]
    server.should_exit = True
    await serving


async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes) -> None:
    """One request on a connection that stays open."""
    writer.write(request)
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    assert head.startswith(b"http/1.1 200"), head[:100]
    await reader.readexactly(int(head.split(b"\r\ncontent-length: ")[1].split(b"\r\n")[0]))


def framed(body: bytes, headers: dict[str, str]) -> bytes:
    lines = [f"POST {PATH} HTTP/1.1", "Host: localhost", f"Content-Length: {len(body)}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + body


async def rate(where: Any, clients: int, requests: int) -> float:
    """Small requests per second."""
    async with where() as port:

        async def client(count: int) -> None:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            for _ in range(count):
                await ask(reader, writer, framed(SMALL, {}))
            writer.close()

        await client(50)
        start = time.perf_counter()
        await asyncio.gather(*(client(requests // clients) for _ in range(clients)))
        return requests // clients * clients / (time.perf_counter() - start)


async def megabyte(where: Any, requests: int) -> float:
    """Median seconds of a request of 1 MB."""
    request = framed(*large())
    async with where() as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=4 * MEGABYTE)
        times = []
        for _ in range(requests):
            start = time.perf_counter()
            await ask(reader, writer, request)
            times.append(time.perf_counter() - start)
        writer.close()
        return float(np.median(times))


async def copy(requests: int) -> float:
    """Median seconds of a copy of 1 MB to memory that is new, as that of a request is."""
    source = np.ones(MEGABYTE, "u1")
    times = []
    for _ in range(requests):
        start = time.perf_counter()
        source.copy()
        times.append(time.perf_counter() - start)
    return float(np.median(times))


def _extend(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--requests", type=int, default=4000, help="small ones of each round (default 4000)")


def main() -> None:
    given = arguments(__doc__, rounds=5, extend=_extend)
    small, big = (400, 10) if given.quick else (given.requests, 100)
    record = Record("serving", given)
    subjects: dict[str, Any] = {"callboard": edge, "bare ASGI": bare}
    bars: list[Bar] = []
    with asyncio.Runner() as runner:

        def measured(work: Callable[[], Any]) -> Callable[[], float]:
            return lambda: float(runner.run(work()))

        for clients in (1, 32):
            rates = {name: measured(functools.partial(rate, each, clients, small)) for name, each in subjects.items()}
            title = f"echo of JSON, {clients} clients"
            found = interleave(rates, given.rounds, title)
            record[title] = table(title, found, lambda x: f"{x:.0f} /s", "bare ASGI")
        times = {name: measured(functools.partial(megabyte, each, big)) for name, each in subjects.items()}
        times["copy"] = measured(functools.partial(copy, 100))
        found = interleave(times, given.rounds, "1 MB as raw bytes")
        record["1 MB as raw bytes"] = table("1 MB as raw bytes", found, lambda x: f"{x * 1e6:.0f} us", "bare ASGI")
        spent = spread(
            [
                (ours - http) / one
                for ours, http, one in zip(*(found[n] for n in ("callboard", "bare ASGI", "copy")), strict=True)
            ]
        )
        bars.append(Bar("1 MB as raw bytes, beyond HTTP, in copies of 1 MB", spent["median"], 2.0, at_least=False))
        ratio = ratios(found, "callboard", "bare ASGI")
        bars.append(Bar("1 MB as raw bytes, to bare ASGI", ratio["median"] if ratio else None, 1.5, at_least=False))
    record.done(tell_bars(bars))


if __name__ == "__main__":
    main()
