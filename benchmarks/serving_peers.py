"""One model behind callboard, LitServe, Ray Serve, BentoML and a batcher of 40 lines: requests per second and p99.

    python benchmarks/serving_peers.py --json serving_peers.json
    python benchmarks/serving_peers.py --quick --peers litserve

Over HTTP, in closed loops. Each framework is installed into an environment of its own under ``build/peers``, and runs
as it comes, with batches of 32, no wait and one replica; Ray with all the flags that its makers measure with. In every
round each server is started, warmed up, measured and stopped, one after the other. Clients are one process that writes
prepared bytes. Beside the rates, this tells the processor time that all processes of a server take for a request, and
that of the clients.
"""

import argparse
import asyncio
import functools
import itertools
import sys
import time
from collections.abc import Awaitable
from typing import Any

from _harness import Bar, Figures, arguments, ratios, table, tell_bars
from _http_load import closed_loop
from _peers import REQUIREMENTS, free_port, processor_seconds, request, server
from _record import Record

LIMITS = {"bare": (0.93, 1.2), "litserve": (3.0, 0.5), "ray": (1.9, 0.7), "bentoml": (4.0, 0.5)}
"""What our requests per second and p99 must be, relative to theirs."""


def _extend(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--peers", nargs="+", choices=LIMITS, default=list(LIMITS))
    parser.add_argument("--clients", type=int, default=128)
    parser.add_argument("--seconds", type=float, default=8.0, help="of each round (default 8)")


async def measured(peer: str, clients: int, seconds: float) -> tuple[float, float, float, float]:
    """Requests per second, the 99th percentile of their latency, processor seconds of the server and of a client."""
    port, numbers = free_port(), itertools.count()
    async with server(peer, port) as process:

        def load(seconds: float) -> Awaitable[tuple[float, float]]:
            return closed_loop(lambda: request(peer, next(numbers) % 1024), port, clients, seconds)

        await load(min(2.0, seconds))
        before, own, started = processor_seconds(process), time.process_time(), time.perf_counter()
        rate, tail = await load(seconds)
        count = rate * (time.perf_counter() - started)
        return rate, tail, (processor_seconds(process) - before) / count, (time.process_time() - own) / count


def main() -> None:
    given = arguments(__doc__, rounds=3, extend=_extend)
    if given.quick:
        given.rounds, given.seconds = 1, min(given.seconds, 2.0)
    record = Record("serving_peers", given)
    rates: Figures = {}
    tails: Figures = {}
    costs: Figures = {}
    subjects = ["callboard", *given.peers]
    for turn in range(given.rounds):
        for peer in subjects if turn % 2 == 0 else subjects[::-1]:
            try:
                rate, tail, cost, own = asyncio.run(measured(peer, given.clients, given.seconds))
            except RuntimeError as e:
                print(e, file=sys.stderr)
                continue
            shown = f"{peer} {rate:.0f} /s, p99 {tail * 1e3:.0f} ms, {cost * 1e6:.0f} us a request"
            print(f"round {turn + 1}: {shown}, and {own * 1e6:.0f} of its client", file=sys.stderr)
            rates.setdefault(peer, []).append(rate)
            tails.setdefault(peer, []).append(tail)
            costs.setdefault(peer, []).append(cost)
    complete = len(rates["callboard"])
    for found in (rates, tails, costs):
        for peer in [peer for peer, values in found.items() if len(values) != complete]:
            del found[peer]
    title = f"closed-{given.clients} over HTTP"
    record[f"{title}, rates"] = table(f"{title}, requests per second", rates, lambda x: f"{x:.0f} /s", "callboard")
    record[f"{title}, p99"] = table(f"{title}, p99", tails, lambda x: f"{x * 1e3:.1f} ms", "callboard")
    record[f"{title}, processor time"] = table(
        f"{title}, processor time of a request", costs, lambda x: f"{x * 1e6:.0f} us", "callboard"
    )
    record["versions"] = {peer: REQUIREMENTS[peer] for peer in given.peers if peer in REQUIREMENTS}
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
