"""Clients beside one whose requests kill the model: failures of the others, and their latency, over HTTP.

    python benchmarks/poisoned.py --json poisoned.json
    python benchmarks/poisoned.py --device cuda --torch --peers
    python benchmarks/poisoned.py --quick --peers

Sixteen clients ask in closed loops, for ``--seconds``; every ``--every`` seconds one request, of other contents each
time, kills the process of the model: by ``os._exit``, or with ``--torch`` on CUDA by a token id out of range, a
device-side assertion. callboard runs as it comes. LitServe and Ray Serve serve the same perceptron, in environments of
their own under ``build/peers``; a client whose connection breaks connects again.
"""

import argparse
import asyncio
import contextlib
import functools
import itertools
import json
import logging
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
from _embedding_model import GOOD, TOKENS, Embedding
from _harness import Bar, arguments, tell_bars
from _peer_servers import MAX_BATCH
from _peers import free_port, request, server
from _perceptron import ResidentPerceptron
from _record import Record

import callboard as cb
from callboard.serve import App, Tensor, listening

CLIENTS = 16
PATIENCE = 120.0
"""Seconds that a response may take; one that takes longer has failed."""

Ask = Callable[[int], bytes]


def _extend(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--peers", nargs="*", choices=("litserve", "ray"), default=["litserve", "ray"])
    parser.add_argument("--seconds", type=float, default=60.0, help="of each round (default 60)")
    parser.add_argument("--every", type=float, default=5.5, help="seconds between killing requests (default 5.5)")
    parser.add_argument("--torch", action="store_true", help="a torch model, not the perceptron; callboard only")
    parser.add_argument("--standby", type=int, default=1, help="hot standbys of the torch model (default 1)")


@asynccontextmanager
async def ours(given: Any) -> AsyncIterator[tuple[int, Ask, Ask]]:
    """The port of an app, and its good and killing requests."""
    device: Any = {"name": given.device} | ({"standby": ("hot", given.standby)} if given.torch else {})

    @asynccontextmanager
    async def lifespan(app: App) -> AsyncIterator[None]:
        async with cb.device(device.pop("name"), **device) as gpu:
            model = gpu.actor_of(cb.Props(Embedding if given.torch else ResidentPerceptron))
            method: Any = Embedding.embeds if given.torch else ResidentPerceptron.rows
            batches = cb.DynamicBatchingServer[Any, Any](functools.partial(model.call, method), max_batch=MAX_BATCH)
            inputs, outputs = [Tensor("i", "INT64", [-1])], [Tensor("y", "FP32", [-1])]
            app.add_model("mlp", batches, inputs=inputs, outputs=outputs, device=gpu)
            yield
            if given.torch:
                health = gpu.health()
                print(f"contexts lost: {health.restarts}", file=sys.stderr)

    def ask(numbers: list[int]) -> bytes:
        x = {"name": "i", "shape": [len(numbers)], "datatype": "INT64", "data": numbers}
        body = json.dumps({"inputs": [x]})
        head = f"POST /v2/models/mlp/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
        return (head + body).encode()

    async with listening(App(lifespan=lifespan), port=0) as url:
        port = int(url.rpartition(":")[2])
        if given.torch:
            yield port, lambda n: ask([*GOOD, n % 100]), lambda n: ask([*GOOD, TOKENS + 5 + n])
        else:
            yield port, lambda n: ask([n % 1024]), lambda n: ask([-1 - n])


@asynccontextmanager
async def theirs(peer: str) -> AsyncIterator[tuple[int, Ask, Ask]]:
    port = free_port()
    async with server(peer, port):
        yield port, lambda n: request(peer, n % 1024), lambda n: request(peer, -1 - n)


async def asked(port: int, given: bytes) -> int:
    """The status of one request on a connection of its own; 0 if there is no response."""
    with contextlib.suppress(OSError, IndexError, TimeoutError):  # no line: the connection was closed
        async with asyncio.timeout(PATIENCE):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            try:
                writer.write(given.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n", 1))
                return int((await reader.readline()).split()[1])
            finally:
                writer.close()
    return 0


async def measured(subject: Any, seconds: float, every: float) -> dict[str, Any]:
    """What the others got, and what those that kill did."""
    async with subject as (port, good, kill):
        while await asked(port, good(0)) != 200:  # it starts  # noqa: ASYNC110
            await asyncio.sleep(0.2)
        until, numbers = time.monotonic() + seconds, itertools.count()
        found, latencies = Counter[int](), list[float]()

        async def client() -> None:
            while (begun := time.monotonic()) < until:
                status = await asked(port, good(next(numbers)))
                found[status] += 1
                latencies.append(time.monotonic() - begun)
                if status != 200:
                    await asyncio.sleep(0.05)  # as clients do

        async def killer() -> list[int]:
            asking: list[asyncio.Task[int]] = []
            async with asyncio.TaskGroup() as group:
                while time.monotonic() + every / 2 < until:
                    await asyncio.sleep(every)
                    asking.append(group.create_task(asked(port, kill(len(asking)))))
            return [task.result() for task in asking]

        killed, *_ = await asyncio.gather(killer(), *(client() for _ in range(CLIENTS)))
        p50, p99, most = (float(np.percentile(latencies, q)) for q in (50, 99, 100))
        return {
            "answered": found.pop(200, 0),
            "failed": sum(found.values()),
            "statuses": {str(status): count for status, count in sorted(found.items())},
            "killing": {str(status): count for status, count in sorted(Counter(killed).items())},
            "p50": p50,
            "p99": p99,
            "longest": most,
        }


def main() -> None:
    given: Any = arguments(__doc__, rounds=1, extend=_extend)
    if given.quick:
        given.seconds, given.every = min(given.seconds, 6.0), min(given.every, 2.0)
    for name in ("callboard.device", "callboard.host", "callboard.patterns"):
        logging.getLogger(name).setLevel(logging.CRITICAL)  # losses are meant
    record = Record("poisoned", given)
    failed = 0
    for turn in range(given.rounds):
        for subject in ("callboard", *([] if given.torch else given.peers)):
            try:
                made = ours(given) if subject == "callboard" else theirs(subject)
                found = asyncio.run(measured(made, given.seconds, given.every))
            except RuntimeError as e:
                print(e, file=sys.stderr)
                continue
            failed += found["failed"] if subject == "callboard" else 0
            others = f"{found['answered']} answered, {found['failed']} failed {found['statuses'] or ''}"
            times = ", ".join(f"{name} {found[name] * 1e3:.0f} ms" for name in ("p50", "p99", "longest"))
            print(f"{subject}: {others}; {times}; killing requests: {found['killing']}")
            record[f"{subject}, round {turn + 1}"] = found
    record.done(tell_bars([Bar("requests of others that failed", float(failed), 0.0, at_least=False)]))


if __name__ == "__main__":
    main()
