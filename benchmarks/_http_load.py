"""A closed loop over HTTP that leaves the processors to the server: connections are callbacks, without tasks."""

import asyncio
import time
from collections.abc import Callable

import numpy as np

__all__ = ["closed_loop"]

PATIENCE = 60.0
"""Seconds that the last responses may take."""


async def closed_loop(ask: Callable[[], bytes], port: int, clients: int, seconds: float) -> tuple[float, float]:
    """Responses per second, and the 99th percentile of their latency.

    Args:
        ask: The bytes of the next request.
        port: On this machine.
        clients: Connections, each of which asks again when it has its response.
        seconds: After which nothing is asked any more.

    Raises:
        TimeoutError: The last responses did not come.
        RuntimeError: A response has another status than 200.
    """
    loop = asyncio.get_running_loop()
    started = time.perf_counter()
    until, latencies = started + seconds, list[float]()
    open_, over = clients, loop.create_future()

    class Client(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            assert isinstance(transport, asyncio.Transport)
            self._transport, self._came, self._asked = transport, b"", 0.0
            self._ask()

        def _ask(self) -> None:
            self._asked = time.perf_counter()
            if self._asked < until:
                self._transport.write(ask())
            else:
                self._transport.close()

        def data_received(self, data: bytes) -> None:
            self._came += data
            try:
                if not _whole(self._came):
                    return
            except RuntimeError as e:
                self._transport.close()
                if not over.done():
                    over.set_exception(e)
                return
            self._came = b""
            latencies.append(time.perf_counter() - self._asked)
            self._ask()

        def connection_lost(self, exc: Exception | None) -> None:
            nonlocal open_
            if time.perf_counter() < until and not over.done():  # a server may close a connection
                again.add(loop.create_task(connect()))
                return
            open_ -= 1
            if not open_ and not over.done():
                over.set_result(None)

    async def connect() -> None:
        await loop.create_connection(Client, "127.0.0.1", port)

    again: set[asyncio.Task[None]] = set()
    await asyncio.gather(*(connect() for _ in range(clients)))
    async with asyncio.timeout(seconds + PATIENCE):
        await over
    return len(latencies) / (time.perf_counter() - started), float(np.percentile(latencies, 99))


def _whole(came: bytes) -> bool:
    """Whether these bytes are a whole response."""
    head, gap, body = came.partition(b"\r\n\r\n")
    if not gap:
        return False
    if not head.startswith(b"HTTP/1.1 200"):
        raise RuntimeError(f"the response begins with {head[:200]!r}")
    _, length, rest = head.lower().partition(b"\r\ncontent-length: ")
    if length:
        return len(body) >= int(rest.partition(b"\r\n")[0])
    return body.endswith(b"0\r\n\r\n")  # in chunks
