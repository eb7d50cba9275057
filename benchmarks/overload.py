"""Three times more requests than a server can do, over HTTP: how many are answered in time, of those that it could do.

    python benchmarks/overload.py --json overload.json
    python benchmarks/overload.py --quick

The model takes 80 ms for a batch of up to 8, without using the CPU, as one on a GPU would: its queue is overloaded, not
the CPU. Its capacity is what a closed loop of 64 clients gets. Then requests come at random times, three times as many
per second, with a deadline of 0.4 s (`timeout` of the protocol). Goodput is the number of those answered in time, per
second. Requests are sent by `callboard load` from a process of its own, to a server in another one, whose memory is
taken before and after.
"""

import argparse
import asyncio
import json
import multiprocessing
import subprocess
import sys
from typing import Any

import psutil
from _harness import Bar, arguments, spread, table, tell_bars
from _record import Record

import callboard as cb
from callboard.serve import App, Tensor, listening

BATCH, SECONDS = 8, 0.08
DEADLINE = 0.4
OVER = 3.0


def serve(port: Any) -> None:
    """The server, until it is terminated."""

    async def run() -> None:
        async def model(items: list[Any]) -> list[Any]:
            await asyncio.sleep(SECONDS)
            return items

        app = App()
        tensors = [Tensor("x", "FP32", [-1])]
        server = cb.DynamicBatchingServer(model, max_batch=BATCH, max_queue=256)
        app.add_model("m", server, inputs=tensors, outputs=tensors)
        async with listening(app, port=0) as url:
            port.send(url)
            await asyncio.Event().wait()

    asyncio.run(run())


def load(url: str, seconds: float, *options: str) -> dict[str, Any]:
    """What ``callboard load`` has found."""
    command = [sys.executable, "-m", "callboard", "load", url, "--json", "--seconds", str(seconds), *options]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=seconds + 60, check=False)
    if done.returncode not in (0, 1):  # 1: no request was answered well
        raise SystemExit(f"callboard load has failed: {done.returncode}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _extend(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seconds", type=float, default=5.0, help="of each load (default 5)")


def main() -> None:
    given = arguments(__doc__, rounds=5, extend=_extend)
    seconds = 1.0 if given.quick else given.seconds
    record = Record("overload", given)
    parent, child = multiprocessing.Pipe()
    server = multiprocessing.get_context("spawn").Process(target=serve, args=(child,))
    server.start()
    try:
        url = parent.recv()
        process = psutil.Process(server.pid)
        last: dict[str, Any] = {}
        capacity = 0.0

        def closed() -> float:
            nonlocal capacity
            last["closed"] = load(url, seconds, "--clients", "64")
            capacity = float(last["closed"]["goodput"])
            return capacity

        def overload() -> float:
            rate = OVER * capacity
            last["overload"] = load(url, seconds, "--rate", str(rate), "--deadline", str(DEADLINE), "--seed", "1")
            return float(last["overload"]["goodput"])

        closed()  # warms up
        before = process.memory_info().rss
        goodputs, capacities = [], []
        for _ in range(given.rounds):
            capacities.append(closed())
            goodputs.append(overload())
        grown = (process.memory_info().rss - before) / 2**20
        found = {"closed loop of 64": capacities, "3 times that": goodputs}
        record["requests answered in time, per second"] = table(
            "requests answered in time, per second", found, lambda x: f"{x:.1f} /s", "closed loop of 64"
        )
        record["ends of the last overload"] = last["overload"]["ends"]
        record["latency of those answered"] = last["overload"]["latency"]
        record["MiB grown"] = grown
        print(f"\nends: {last['overload']['ends']}, latency: {last['overload']['latency']}, grown by {grown:.1f} MiB")
    finally:
        server.terminate()
        server.join(10)
    ratio = spread([good / able for good, able in zip(goodputs, capacities, strict=True)])["median"]
    record.done(tell_bars([Bar("goodput at three times the capacity, to the capacity", ratio, 0.9, at_least=True)]))


if __name__ == "__main__":
    main()
