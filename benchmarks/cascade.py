"""Throughput of a cascade, relative to that of its models.

    python benchmarks/cascade.py --json cascade.json
    python benchmarks/cascade.py --quick

Two models that share one thread, as they would share a GPU: the small one takes 0.5 ms an item, the large one 5 ms, and
the small one is unsure of every tenth item. The time passes without using the CPU; a second batch of each model is
queued behind the first. The ideal is the sum of these times;
measured are 128 clients, each of which submits its next item when it has its answer, with all that they do between. The
same load on the large model alone, in a ``DynamicBatchingServer``, is what the cascade saves.
"""

import asyncio
import concurrent.futures
import time
from collections.abc import Callable
from typing import Any

from _harness import Bar, arguments, interleave, ratios, table, tell_bars
from _record import Record

import callboard as cb

CLIENTS, MAX_BATCH = 128, 32
SMALL, LARGE, UNSURE = 0.5e-3, 5e-3, 10


async def served(cascade: bool, seconds: float) -> float:
    """Answers per second, as a share of what the models allow if nothing is lost; of the large one alone, as it is."""
    spent = {"small": 0.0, "large": 0.0}

    def model(name: str, each: float) -> Callable[[list[int]], list[Any]]:
        def run(items: list[int]) -> list[Any]:
            time.sleep(each * len(items))
            spent[name] += each * len(items)
            return [(item, float(name == "large" or item % UNSURE > 0)) for item in items]

        return run

    device = concurrent.futures.ThreadPoolExecutor(1)
    options: dict[str, Any] = {"max_batch": MAX_BATCH, "max_concurrent_batches": 2, "executor": device}
    small, large = (model("small", SMALL), model("large", LARGE))
    stages = [cb.CascadeStage(small, 0.5, batching=options), cb.CascadeStage(large, batching=options)]
    server: Any = (
        cb.InferenceCascade[int, int](stages) if cascade else cb.DynamicBatchingServer[int, Any](large, **options)
    )
    async with server:
        start = time.perf_counter()
        answers = 0

        async def client(n: int) -> None:
            nonlocal answers
            while time.perf_counter() < start + seconds:
                await server.submit(n + answers)
                answers += 1

        await asyncio.gather(*(client(n) for n in range(CLIENTS)))
        taken = time.perf_counter() - start
    device.shutdown()
    return answers / taken if not cascade else sum(spent.values()) / taken


async def rate(seconds: float) -> float:
    """Answers per second of the cascade."""
    return await served(True, seconds) / (SMALL + LARGE / UNSURE)


def main() -> None:
    given = arguments(__doc__, rounds=5)
    seconds = 0.3 if given.quick else 2.0
    record = Record("cascade", given)
    rates = interleave(
        {
            "cascade": lambda: asyncio.run(rate(seconds)),
            "large model alone": lambda: asyncio.run(served(False, seconds)),
            "ideal": lambda: 1 / (SMALL + LARGE / UNSURE),
        },
        given.rounds,
        "cascade",
    )
    record["throughput"] = table("throughput", rates, lambda found: f"{found:.0f} /s", "ideal")
    ratio = ratios(rates, "cascade", "ideal")
    record.done(tell_bars([Bar("throughput, to ideal", ratio and ratio["median"], 0.9, at_least=True)]))


if __name__ == "__main__":
    main()
