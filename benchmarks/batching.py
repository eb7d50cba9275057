"""Cost and gain of dynamic batching: ``DynamicBatchingServer``, plain idle dispatch and a Cork-like policy.

    python benchmarks/batching.py --json batching.json
    python benchmarks/batching.py --quick --device cpu
    python benchmarks/batching.py --bentoml --json batching.json

The model takes 1 ms a batch and 0.05 ms an item without using the CPU, as one on a GPU would; with ``--model device``
it is a perceptron of three layers on the device. Closed loops: so many clients, each of which submits its next
request when it has its answer. Poisson: requests at random times, independent of the answers. All subjects are measured
in every round, one after the other. The overhead is measured without a device, on an async function that returns at
once. Taking an item is what its copy adds to the call, beside the copy alone. ``--bentoml`` measures BentoML's Cork
itself as well: this then runs in an environment under ``build/peers`` that has BentoML and what callboard needs.
"""

import argparse
import asyncio
import concurrent.futures
import functools
import gc
import importlib.util
import itertools
import time
import timeit
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np
from _batching_rivals import BentoCork, Cork, IdleDispatch
from _harness import Bar, Figures, arguments, interleave, ratios, spread, table, tell_bars
from _peers import dependencies, run_in
from _record import Record

import callboard as cb
from callboard.patterns.contract.atcall import as_given, at_the_call

MAX_BATCH = 32
FIXED, PER_ITEM = 1e-3, 0.05e-3
WIDTHS = (384, 2048, 2048, 8)
SUBJECTS: dict[str, Callable[[Any], Any]] = {
    "callboard": lambda function: cb.DynamicBatchingServer(function, max_batch=MAX_BATCH, max_queue=100_000),
    "idle dispatch": lambda function: IdleDispatch(function, MAX_BATCH),
    "Cork": lambda function: Cork(function, MAX_BATCH),
}
Submit = Callable[[Any], Awaitable[Any]]


def _extend(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", choices=("timed", "device"), default="timed")
    parser.add_argument("--bentoml", action="store_true", help="beside BentoML's own batching, which is installed")
    parser.add_argument("--seconds", type=float, default=2.0, help="of each load (default 2)")
    parser.add_argument("--rate", type=float, default=2000.0, help="requests per second of the heavier Poisson load")


def timed_model() -> Callable[[list[Any]], Awaitable[list[Any]]]:
    """A batch function whose time passes on a thread that sleeps."""
    pool = concurrent.futures.ThreadPoolExecutor(1)

    async def run(items: list[Any]) -> list[Any]:
        await asyncio.get_running_loop().run_in_executor(pool, time.sleep, FIXED + PER_ITEM * len(items))
        return items

    return run


def model_on(device: cb.Device) -> Callable[[list[Any]], Awaitable[np.ndarray]]:
    """A batch function of device ops."""
    rng = np.random.default_rng(1)
    weights = [device.put(rng.standard_normal(pair, np.float32)) for pair in itertools.pairwise(WIDTHS)]

    async def run(items: list[Any]) -> np.ndarray:
        x = device.put(np.stack(items))
        for w in weights:
            x = device.blas.gemm(x, w)
        return await x.get()

    return run


async def closed(submit: Submit, clients: int, seconds: float) -> float:
    """Answers per second."""
    item = np.ones(WIDTHS[0], np.float32)
    until = time.perf_counter() + seconds
    answers = 0

    async def client(n: int) -> None:
        nonlocal answers
        if n % 2:  # when the first batch runs: half of the clients are in flight while the others wait
            await asyncio.sleep(0.002)
        while time.perf_counter() < until:
            await submit(item)
            answers += 1

    start = time.perf_counter()
    await asyncio.gather(*(client(n) for n in range(clients)))
    return answers / (time.perf_counter() - start)


async def poisson(submit: Submit, rate: float, seconds: float) -> tuple[float, float]:
    """Median and 99th percentile of the latency."""
    item = np.ones(WIDTHS[0], np.float32)
    rng = np.random.default_rng(2)
    dues = np.cumsum(rng.exponential(1 / rate, int(rate * seconds)))
    latencies: list[float] = []
    start = time.perf_counter()

    async def one(due: float) -> None:
        await asyncio.sleep(due - (time.perf_counter() - start))
        begun = time.perf_counter()
        await submit(item)
        latencies.append(time.perf_counter() - begun)

    await asyncio.gather(*(one(float(due)) for due in dues))
    p50, p99 = np.percentile(latencies, [50, 99])
    return float(p50), float(p99)


async def thirty(make: Callable[[Any], Any]) -> float:
    """Seconds for 30 requests, one each 5 ms, onto a model that takes 100 ms."""

    async def slow(items: list[Any]) -> list[Any]:
        await asyncio.sleep(0.1)
        return items

    async with make(slow) as server:
        start = time.perf_counter()

        async def one(n: int) -> None:
            await asyncio.sleep(0.005 * n)
            await server.submit(n)

        await asyncio.gather(*(one(n) for n in range(30)))
        return time.perf_counter() - start


async def overhead(make: Callable[[Any], Any], calls: int) -> float:
    """Median seconds of a lone request to an async function that returns at once."""

    async def echo(items: list[Any]) -> list[Any]:
        return items

    async with make(echo) as server:
        times = []
        for _ in range(calls):
            start = time.perf_counter()
            await server.submit(1)
            times.append(time.perf_counter() - start)
        return float(np.median(times))


def taking(item: Any, calls: int) -> float:
    """Seconds that a method needs more if it takes its item at the call."""
    server = Taker()
    return max(0.0, _least(server.give, item, calls) - _least(as_given(server.give), item, calls))


class Taker:
    """Something that is given items."""

    @at_the_call
    def give(self, item: Any) -> Any:
        return item


def _least(call: Callable[[Any], Any], item: Any, calls: int) -> float:
    return min(timeit.repeat(functools.partial(call, item), number=calls, repeat=50)) / calls


async def loaded(make: Callable[[Any], Any], function: Any, load: Callable[[Submit], Awaitable[Any]]) -> Any:
    """A server of its own for one load, and some requests before it."""
    async with make(function) as server:
        await closed(server.submit, 4, 0.1)
        gc.collect()
        return await load(server.submit)


def _copied(item: Any, calls: int) -> float:
    return _least(np.copy, item, calls)


SMALL, LARGE = np.zeros(1024, np.float32), np.zeros(1 << 18, np.float32)
ITEMS: dict[str, tuple[Callable[[Any, int], float], Any]] = {
    "a text": (taking, "text"),
    "4 KB": (taking, SMALL),
    "np.copy of 4 KB": (_copied, SMALL),
    "1 MB": (taking, LARGE),
    "np.copy of 1 MB": (_copied, LARGE),
    "512 tokens": (taking, list(range(512))),
}
TAKING = "taking an item"


def main() -> None:
    given = arguments(__doc__, rounds=5, extend=_extend)
    if given.quick:
        given.seconds = min(given.seconds, 0.3)
    if given.bentoml:
        if importlib.util.find_spec("bentoml") is None:
            run_in("bentoml", dependencies())
        SUBJECTS["BentoML's Cork"] = lambda function: BentoCork(function, MAX_BATCH)
    record = Record("batching", given)
    bars: list[Bar] = []
    with asyncio.Runner() as runner:

        async def opened() -> Any:
            if given.model == "timed":
                return timed_model()
            await system.start()
            return model_on(await system.device(given.device))

        def compare(title: str, show: Callable[[float], str], measure: Callable[[Any], Any]) -> Figures:
            def once(make: Any) -> float:
                return float(runner.run(measure(make)))

            subjects: dict[str, Callable[[], float]] = {
                name: functools.partial(once, make) for name, make in SUBJECTS.items()
            }
            found = interleave(subjects, given.rounds, title)
            record[title] = table(title, found, show, "idle dispatch")
            return found

        def bar(what: str, found: Figures, to: str, limit: float, at_least: bool) -> None:
            ratio = ratios(found, "callboard", to)
            bars.append(Bar(f"{what}, to {to}", ratio["median"] if ratio else None, limit, at_least))

        system = cb.System("batching")
        function = runner.run(opened())
        lone = compare("overhead of a lone request", micros, lambda make: overhead(make, 300 if given.quick else 3000))
        median = spread(lone["callboard"])["median"]
        bars.append(Bar("overhead of a lone request, us", median * 1e6, 60, at_least=False))
        taken: dict[str, Callable[[], float]] = {
            name: functools.partial(measure, item, 20 if given.quick else 200)
            for name, (measure, item) in ITEMS.items()
        }
        record[TAKING] = table(TAKING, interleave(taken, given.rounds, TAKING), micros, "a text")
        slow = compare("30 requests in 150 ms", millis, thirty)
        bars.append(Bar("30 requests in 150 ms, s", spread(slow["callboard"])["median"], 0.35, at_least=False))
        for clients, limits in ((1, {"idle dispatch": 0.95}), (16, {"idle dispatch": 1.3, "Cork": 1.0}), (128, {})):
            load = functools.partial(closed, clients=clients, seconds=given.seconds)
            found = compare(
                f"closed, {clients} clients", per_second, functools.partial(loaded, function=function, load=load)
            )
            theirs = {"BentoML's Cork": limits.get("Cork", 0.97)} if given.bentoml and clients > 1 else {}
            for to, limit in ((limits or {"idle dispatch": 0.97, "Cork": 0.97}) | theirs).items():
                bar(f"closed, {clients} clients", found, to, limit, at_least=True)
        for rate in (300.0, given.rate):
            tails: dict[str, list[float]] = {name: [] for name in SUBJECTS}

            async def both(make: Any, rate: float = rate, tails: dict[str, list[float]] = tails) -> float:
                p50, p99 = await loaded(make, function, lambda s: poisson(s, rate, given.seconds))
                tails[next(name for name, each in SUBJECTS.items() if each is make)].append(p99)
                return float(p50)

            medians = compare(f"Poisson, {rate:g} a second, p50", millis, both)
            record[f"Poisson, {rate:g} a second, p99"] = table(
                f"Poisson, {rate:g} a second, p99", tails, millis, "idle dispatch"
            )
            if rate == 300.0:
                bar("Poisson 300 p50", medians, "idle dispatch", 1.1, at_least=False)
            else:
                bar(f"Poisson {rate:g} p99", tails, "idle dispatch", 1.0, at_least=False)
        if given.model == "device":
            runner.run(system.stop())
    record.done(tell_bars(bars))


def micros(seconds: float) -> str:
    return f"{seconds * 1e6:.1f} us"


def millis(seconds: float) -> str:
    return f"{seconds * 1e3:.2f} ms"


def per_second(rate: float) -> str:
    return f"{rate:.0f} /s"


if __name__ == "__main__":
    main()
