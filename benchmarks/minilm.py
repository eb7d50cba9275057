"""MiniLM served: batches by length beside batches by arrival and none, 50 swaps, and a killed host, under closed loops.

    python benchmarks/minilm.py --json minilm.json
    python benchmarks/minilm.py --quick --device cpu

Texts are of mixed lengths: most are short queries, some are paragraphs (lengths of docstrings: log-normal, median 24
tokens, cut at 256). "By length" joins buckets of several lengths where that is measured to be faster, "not joined" does
not. Closed loop: so many clients, each of which submits its next text when it has its vector. The model
is a resident actor in a process of its own. Where the weights are not installed, random ones of the same form take
their place, which the record says.
"""

import argparse
import asyncio
import functools
import os
import signal
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
from _checkpoint import WORDS, checkpoint
from _harness import Bar, arguments, interleave, kind_of, ratios, table, tell_bars
from _record import Record

import callboard as cb
from callboard.serve.bundled.demo import MAX_BATCH, batched, encoder
from callboard.serve.bundled.minilm import MiniLM, engine_of
from callboard.serve.bundled.wordpiece import MAX_TOKENS

CLIENTS = 64
MEDIAN, SIGMA = 24, 0.9
Server = Any
Embed = Callable[[list[list[int]]], Awaitable[Any]]


def texts(count: int) -> list[list[int]]:
    """Lists of tokens of mixed lengths."""
    rng = np.random.default_rng(3)
    lengths = np.clip(np.exp(rng.normal(np.log(MEDIAN), SIGMA, count)), 3, MAX_TOKENS).astype(int)
    return [rng.integers(1000, WORDS, length).tolist() for length in lengths]


SUBJECTS: dict[str, Callable[[Embed], Server]] = {
    "by length": batched,
    "by length, 16,384 tokens": functools.partial(batched, max_tokens=16384),
    "by length, not joined": functools.partial(batched, join=False),
    "by length, 16,384 tokens, not joined": functools.partial(batched, max_tokens=16384, join=False),
    "by arrival": lambda embed: cb.DynamicBatchingServer(embed, max_batch=32, max_queue=4096),
    "no batching": lambda embed: cb.DynamicBatchingServer(embed, max_batch=1, max_queue=4096),
}


@asynccontextmanager
async def model_on(name: str, folder: Path) -> AsyncIterator[tuple[cb.Device, Embed]]:
    async with cb.device(name, isolation="process", max_restarts=None) as device:
        actor = await device.actor_of(cb.Props(MiniLM, str(folder), engine_of(device.backend)), wait=True)
        yield device, functools.partial(actor.call, MiniLM.embed)


async def throughput(embed: Embed, subject: str, given: list[list[int]]) -> float:
    """Texts per second of a closed loop."""
    async with SUBJECTS[subject](embed) as server:
        waiting = iter(given)

        async def client() -> None:
            for text in waiting:
                await server.submit(text)

        started = time.perf_counter()
        await asyncio.gather(*(client() for _ in range(CLIENTS)))
        return len(given) / (time.perf_counter() - started)


async def closed(server: Server, given: list[list[int]], until: asyncio.Event) -> tuple[list[tuple[float, float]], int]:
    """When each request ended and how long it took, and how many failed."""
    ended: list[tuple[float, float]] = []
    failed = 0

    async def client(at: int) -> None:
        nonlocal failed
        while not until.is_set():
            started = time.perf_counter()
            try:
                await server.submit(given[at % len(given)])
            except cb.AccelError:
                failed += 1
            ended.append((time.perf_counter(), time.perf_counter() - started))
            at += CLIENTS

    await asyncio.gather(*(client(at) for at in range(CLIENTS)))
    return ended, failed


def p99(seconds: list[float]) -> float:
    """NaN where nothing was measured."""
    return float(np.quantile(seconds, 0.99)) if seconds else float("nan")


async def swaps(device: cb.Device, folder: Path, given: list[list[int]], count: int) -> dict[str, Any]:
    """Replace the model so often under a closed loop."""
    over = asyncio.Event()
    version = encoder(device, folder)
    async with cb.ModelHotSwapServer[list[int], Any](version, max_queue=4096) as server:
        load = asyncio.create_task(closed(server, given, over))
        spans = []
        for number in range(count):
            started = time.perf_counter()
            await server.swap(cb.ModelVersion(f"swap {number}", version.load, unload=version.unload))
            spans.append((started, time.perf_counter()))
        steady = time.perf_counter()
        await asyncio.sleep(3)
        over.set()
        ended, failed = await load
    inside = [seconds for at, seconds in ended if at <= steady]
    after = [seconds for at, seconds in ended if at > steady + 0.5]
    return {
        "swaps": count,
        "requests": len(inside),
        "failed": failed,
        "seconds per swap": float(np.median([b - a for a, b in spans])),
        "p99 while swapping": p99(inside),
        "p99 steady": p99(after),
    }


async def killed(device: cb.Device, embed: Embed, given: list[list[int]], count: int) -> dict[str, Any]:
    """Kill the host so often under a closed loop; p99 of the requests that were open in the second after it."""
    over = asyncio.Event()
    kills, recovered = [], []
    async with batched(embed) as server:
        load = asyncio.create_task(closed(server, given, over))
        for _ in range(count):
            await asyncio.sleep(2)
            generation, pid = device.generation, device.health().host_pid
            assert pid is not None
            kills.append(time.perf_counter())
            os.kill(pid, signal.SIGKILL)
            await device.watch_generation().changed(generation)
            before = server.stats().completed
            while server.stats().completed == before:  # noqa: ASYNC110 -- of other tasks
                await asyncio.sleep(0.001)
            recovered.append(time.perf_counter() - kills[-1])
        await asyncio.sleep(2)
        over.set()
        ended, failed = await load
    near = [seconds for at, seconds in ended if any(at - seconds < kill + 1 and at > kill for kill in kills)]
    far = [seconds for at, seconds in ended if not any(-1 <= at - kill < 6 for kill in kills)]
    return {
        "kills": count,
        "requests": len(ended),
        "failed": failed,
        "kill to next vector": float(np.median(recovered)),
        "p99 of that second": p99(near),
        "p99 otherwise": p99(far),
    }


def _extend(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--texts", type=int, default=600, help="of each round (default 600)")
    parser.add_argument("--swaps", type=int, default=50)
    parser.add_argument("--kills", type=int, default=3)


async def measure(given: Any, record: Record, folder: Path) -> list[Bar]:
    mixed = texts(80 if given.quick else given.texts)
    async with model_on(given.device, folder) as (device, embed):
        await embed(mixed[:MAX_BATCH])
        loop = asyncio.get_running_loop()

        def run(subject: str) -> float:
            return asyncio.run_coroutine_threadsafe(throughput(embed, subject, mixed), loop).result()

        subjects = {name: functools.partial(run, name) for name in SUBJECTS}
        title = f"closed loop of {CLIENTS}, mixed lengths"
        found = await asyncio.to_thread(interleave, subjects, given.rounds, title)
        record[title] = table(title, found, lambda x: f"{x:.1f} /s", "by arrival")
        told: dict[str, dict[str, Any]] = {}
        for name, work in (
            ("swaps", functools.partial(swaps, device, folder, mixed, 2 if given.quick else given.swaps)),
            ("killed host", functools.partial(killed, device, embed, mixed, 1 if given.quick else given.kills)),
        ):
            record[name] = told[name] = await work()
            print(f"\n{name}: " + ", ".join(f"{key} {value:.4g}" for key, value in told[name].items()))
    to_arrival, to_none = (ratios(found, "by length", other) for other in ("by arrival", "no batching"))
    assert to_arrival is not None
    assert to_none is not None
    gpu = kind_of(given.device) == "cuda"
    return [
        # A GPU hardly feels the padding of small texts: there, batches by length are not to cost anything.
        Bar("throughput by length, to batches by arrival", to_arrival["median"], 1.0 if gpu else 1.8, at_least=True),
        Bar("throughput by length, to no batching", to_none["median"], 1.0, at_least=True),
        Bar("failed requests in all swaps", told["swaps"]["failed"], 0, at_least=False),
        Bar("failed requests with a killed host", told["killed host"]["failed"], 0, at_least=False),
    ]


def main() -> None:
    given = arguments(__doc__, rounds=5, extend=_extend)
    record = Record("minilm", given)
    with tempfile.TemporaryDirectory() as spare:
        folder, weights = checkpoint(Path(spare))
        record["model"] = {"weights": weights}
        bars = asyncio.run(measure(given, record, folder))
    record.done(tell_bars(bars))


if __name__ == "__main__":
    main()
