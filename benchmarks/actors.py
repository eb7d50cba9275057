"""Speed of actors, relative to a bare ``asyncio.Queue`` with one task, measured in the same run.

    python benchmarks/actors.py --json out.json

Each round measures the baseline and the actors one after the other (A B A B), so that a neighbour on the machine slows
both. The ratio of a round is what counts; printed are its minimum, median and maximum over all rounds. pykka and xoscar
are measured beside them when they are installed.
"""

import argparse
import asyncio
import gc
import importlib
import json
import platform
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from callboard.actors import Actor, ActorSystem, Msg, Pinned, Props, Request

TELLS = 200_000
ASKS = 20_000
FLIGHT = 1_000
FLIGHT_ASKS = 100_000
BARS = {"tell": (0.40, "higher"), "ask_p50": (1.25, "lower"), "asks_1000": (0.55, "higher")}

Metrics = dict[str, float]


class Note(Msg["Echo"]):
    """Tell."""

    value: int


class Question(Request["Echo", int]):
    """Ask."""

    value: int


class Finish(Request["Echo", int]):
    """Answered when all that was told before is done."""


# Made once: what is compared is the delivery.
NOTE = Note(value=1)
QUESTION = Question(value=1)


class Echo(Actor):
    """Does nothing as fast as it can."""

    def __init__(self) -> None:
        self.count = 0

    @Note.handles
    def note(self, m: Note) -> None:
        self.count += 1

    @Question.handles
    def question(self, m: Question) -> int:
        return m.value

    @Finish.handles
    def finish(self, m: Finish) -> int:
        return self.count


async def latencies(ask: Callable[[], Awaitable[Any]], n: int) -> list[float]:
    """Seconds of ``n`` asks, one after the other, sorted."""
    clock = time.perf_counter
    found: list[float] = []
    for _ in range(n):
        start = clock()
        await ask()
        found.append(clock() - start)
    found.sort()
    return found


async def in_flight(ask: Callable[[], Awaitable[Any]], total: int, width: int) -> float:
    """Asks per second of ``width`` askers at once."""

    async def asker(n: int) -> None:
        for _ in range(n):
            await ask()

    start = time.perf_counter()
    await asyncio.gather(*(asker(total // width) for _ in range(width)))
    return total / (time.perf_counter() - start)


async def measure(tell_all: Callable[[], Awaitable[None]], ask: Callable[[], Awaitable[Any]], scale: float) -> Metrics:
    """Throughput of tells, latency of asks, throughput of asks."""
    gc.collect()
    start = time.perf_counter()
    await tell_all()
    tells = TELLS * scale / (time.perf_counter() - start)
    times = await latencies(ask, int(ASKS * scale))
    return {
        "tell": tells,
        "ask_p50": times[len(times) // 2] * 1e6,
        "ask_p99": times[len(times) * 99 // 100] * 1e6,
        "asks_1000": await in_flight(ask, max(FLIGHT, int(FLIGHT_ASKS * scale)), FLIGHT),
    }


async def queue_round(scale: float) -> Metrics:
    """The baseline: messages, or ``(message, future)``, in an ``asyncio.Queue``, and one consumer task."""
    queue: asyncio.Queue[Any] = asyncio.Queue()
    loop = asyncio.get_running_loop()
    count = 0

    async def consume() -> None:
        nonlocal count
        while True:
            message = await queue.get()
            count += 1
            if type(message) is tuple and not message[1].done():
                message[1].set_result(message[0])

    consumer = asyncio.create_task(consume())

    def ask() -> asyncio.Future[Any]:
        future = loop.create_future()
        queue.put_nowait((QUESTION, future))
        return future

    async def tell_all() -> None:
        for _ in range(int(TELLS * scale)):
            queue.put_nowait(NOTE)
        await ask()

    found = await measure(tell_all, ask, scale)
    consumer.cancel()
    return found


def actor_round(pinned: bool) -> Callable[[float], Awaitable[Metrics]]:
    """Callboard's actors, on the same loop or on a pinned thread; each ask has the default timeout of 5 s."""

    async def run(scale: float) -> Metrics:
        async with ActorSystem("bench") as system:
            props = Props(Echo)
            ref = system.actor_of(props.with_dispatcher(Pinned("bench")) if pinned else props, "echo")

            def ask() -> asyncio.Future[int]:
                return ref.ask(QUESTION)

            async def tell_all() -> None:
                for _ in range(int(TELLS * scale)):
                    ref.tell(NOTE)
                await ref.ask(Finish())

            return await measure(tell_all, ask, scale)

    return run


async def pykka_round(scale: float) -> Metrics:
    """pykka: a thread per actor; its futures are waited for as it intends, by blocking."""
    pykka = importlib.import_module("pykka")

    class Counter(pykka.ThreadingActor):  # type: ignore[misc, name-defined]
        def on_receive(self, message: Any) -> Any:
            return message

    ref = Counter.start()
    try:

        async def ask() -> Any:
            return ref.ask(QUESTION)

        async def tell_all() -> None:
            for _ in range(int(TELLS * scale)):
                ref.tell(NOTE)
            await ask()

        gc.collect()
        start = time.perf_counter()
        await tell_all()
        tells = TELLS * scale / (time.perf_counter() - start)
        times = await latencies(ask, int(ASKS * scale))
        total = max(FLIGHT, int(FLIGHT_ASKS * scale))
        start = time.perf_counter()
        for _ in range(total // FLIGHT):
            for future in [ref.ask(QUESTION, block=False) for _ in range(FLIGHT)]:
                future.get()
        asks = total / (time.perf_counter() - start)
        return {
            "tell": tells,
            "ask_p50": times[len(times) // 2] * 1e6,
            "ask_p99": times[len(times) * 99 // 100] * 1e6,
            "asks_1000": asks,
        }
    finally:
        ref.stop()


async def xoscar_round(scale: float) -> Metrics:
    """An actor of xoscar in the same process, through an ``ActorRef``."""
    xo = importlib.import_module("xoscar")

    class Counter(xo.Actor):  # type: ignore[misc, name-defined]
        def note(self, value: int) -> None:
            return None

        def question(self, value: int) -> int:
            return value

    pool = await xo.create_actor_pool("127.0.0.1", n_process=0)
    try:
        ref = await xo.create_actor(Counter, address=pool.external_address, uid="counter")

        async def ask() -> Any:
            return await ref.question(1)

        async def tell_all() -> None:
            for _ in range(int(TELLS * scale)):
                await ref.note.tell(1)

        return await measure(tell_all, ask, scale)
    finally:
        await pool.stop()


def ratios(name: str, rounds: list[tuple[Metrics, Metrics]]) -> dict[str, dict[str, float]]:
    """Minimum, median and maximum of the ratio to the baseline of the same round, per metric."""
    table = {}
    for metric in rounds[0][0]:
        each = sorted(found[metric] / base[metric] for base, found in rounds)
        middle = statistics.median(found[metric] for _, found in rounds)
        table[metric] = {"min": each[0], "median": statistics.median(each), "max": each[-1], "value": middle}
        value = f"{middle:10.2f} us  " if metric.startswith("ask_p") else f"{middle:10.0f} /s  "
        print(f"{name:22} {metric:10} {value} ratio {each[0]:7.3f} {table[metric]['median']:7.3f} {each[-1]:7.3f}")
    return table


async def main(rounds: int, others: bool, store: Callable[[dict[str, Any]], None]) -> None:
    """Measure everything; ``store`` is given the rounds so far after each, and everything at the end."""
    subjects: dict[str, tuple[Callable[[float], Awaitable[Metrics]], float]] = {
        "callboard": (actor_round(pinned=False), 1.0),
        "callboard pinned": (actor_round(pinned=True), 0.25),
    }
    absent = []
    for name, run, scale in (("pykka", pykka_round, 0.1), ("xoscar", xoscar_round, 0.02)):
        try:
            importlib.import_module(name)
        except ImportError:
            absent.append(name)
        else:
            if others:
                subjects[name] = (run, scale)
    found: dict[str, list[tuple[Metrics, Metrics]]] = {name: [] for name in subjects}
    interval = sys.getswitchinterval()
    for done in range(1, rounds + 1):
        for name, (run, scale) in subjects.items():
            base = await queue_round(1.0)
            found[name].append((base, await run(scale)))
            sys.setswitchinterval(interval)  # a pinned thread lowers it; the next subject starts from the default
        store({"partial": True, "rounds": done, "measured": found})
    print(f"{'':22} {'':10} {'median':>13}  ratio {'min':>7} {'median':>7} {'max':>7}")
    base_rounds = [(base, base) for base, _ in found["callboard"]]
    result: dict[str, Any] = {"asyncio.Queue": ratios("asyncio.Queue", base_rounds)}
    for name in subjects:
        result[name] = ratios(name, found[name])
    for name in absent:
        print(f"{name:22} not installed")
        result[name] = "not installed"
    print()
    for metric, (bar, better) in BARS.items():
        ratio = result["callboard"][metric]["median"]
        held = ratio >= bar if better == "higher" else ratio <= bar
        print(f"bar: {metric:10} {ratio:.3f}, {'at least' if better == 'higher' else 'at most'} {bar}: {held}")
    store(
        {
            "python": platform.python_version(),
            "machine": platform.machine(),
            "rounds": rounds,
            "bars": {metric: bar for metric, (bar, _) in BARS.items()},
            "results": result,
        }
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="store the figures there")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only-own", action="store_true", help="leave pykka and xoscar out")
    arguments = parser.parse_args()

    def store(outcome: dict[str, Any]) -> None:
        if arguments.json is not None:
            arguments.json.write_text(json.dumps(outcome, indent=2) + "\n", "utf-8")

    asyncio.run(main(arguments.rounds, not arguments.only_own, store))
