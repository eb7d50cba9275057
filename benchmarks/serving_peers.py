"""One model behind callboard, LitServe, Ray Serve and BentoML: requests per second and p99 over HTTP, in closed loops.

    python benchmarks/serving_peers.py --json serving_peers.json
    python benchmarks/serving_peers.py --quick --peers litserve

Each framework is installed into an environment of its own under ``build/peers``, and runs as it comes, with batches of
32, no wait and one replica; Ray with all the flags that its makers measure with. In every round each server is started,
warmed up, measured and stopped, one after the other. Clients are one process that writes prepared bytes.
"""

import argparse
import asyncio
import functools
import itertools
import socket
import sys
import time
from contextlib import suppress
from typing import Any

import numpy as np
from _harness import Bar, Figures, arguments, ratios, table, tell_bars
from _peers import REQUIREMENTS, ask, request, server
from _record import Record

LIMITS = {"litserve": (2.4, 0.5), "ray": (1.5, 0.7), "bentoml": (4.0, 0.5)}
"""What our requests per second and p99 must be, relative to theirs."""


def _extend(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--peers", nargs="+", choices=REQUIREMENTS, default=list(REQUIREMENTS))
    parser.add_argument("--clients", type=int, default=128)
    parser.add_argument("--seconds", type=float, default=8.0, help="of each round (default 8)")


async def load(peer: str, port: int, clients: int, seconds: float) -> tuple[float, float]:
    """Requests per second, and the 99th percentile of their latency."""
    latencies: list[float] = []
    numbers = itertools.count()
    until = time.perf_counter() + seconds

    async def client() -> None:
        while time.perf_counter() < until:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            with suppress(asyncio.IncompleteReadError, ConnectionError):  # a server may close a connection
                while (begun := time.perf_counter()) < until:
                    await ask(reader, writer, request(peer, next(numbers) % 1024))
                    latencies.append(time.perf_counter() - begun)
            writer.close()

    started = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(clients)))
    return len(latencies) / (time.perf_counter() - started), float(np.percentile(latencies, 99))


async def measured(peer: str, clients: int, seconds: float) -> tuple[float, float]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    async with server(peer, port):
        await load(peer, port, clients, min(2.0, seconds))
        return await load(peer, port, clients, seconds)


def main() -> None:
    given = arguments(__doc__, rounds=3, extend=_extend)
    if given.quick:
        given.rounds, given.seconds = 1, min(given.seconds, 2.0)
    record = Record("serving_peers", given)
    rates: Figures = {}
    tails: Figures = {}
    subjects = ["callboard", *given.peers]
    for turn in range(given.rounds):
        for peer in subjects if turn % 2 == 0 else subjects[::-1]:
            try:
                rate, tail = asyncio.run(measured(peer, given.clients, given.seconds))
            except RuntimeError as e:
                print(e, file=sys.stderr)
                continue
            print(f"round {turn + 1}: {peer} {rate:.0f} /s, p99 {tail * 1e3:.0f} ms", file=sys.stderr)
            rates.setdefault(peer, []).append(rate)
            tails.setdefault(peer, []).append(tail)
    complete = len(rates["callboard"])
    for found in (rates, tails):
        for peer in [peer for peer, values in found.items() if len(values) != complete]:
            del found[peer]
    title = f"closed-{given.clients} over HTTP"
    record[f"{title}, rates"] = table(f"{title}, requests per second", rates, lambda x: f"{x:.0f} /s", "callboard")
    record[f"{title}, p99"] = table(f"{title}, p99", tails, lambda x: f"{x * 1e3:.1f} ms", "callboard")
    record["versions"] = {peer: REQUIREMENTS[peer] for peer in given.peers}
    median = functools.partial(_median, "callboard")
    bars: list[Bar] = []
    for peer in given.peers:
        faster, sooner = LIMITS[peer]
        bars.append(Bar(f"{title}, requests per second, to {peer}", median(rates, peer), faster, at_least=True))
        bars.append(Bar(f"{title}, p99, to {peer}", median(tails, peer), sooner, at_least=False))
    record.done(tell_bars(bars))


def _median(of: str, found: Any, to: str) -> float | None:
    ratio = ratios(found, of, to)
    return None if ratio is None else ratio["median"]


if __name__ == "__main__":
    main()
