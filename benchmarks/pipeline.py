"""Throughput of a pipeline relative to its slowest stage: ``PipelineExecutor`` with overlapped copies and computing.

    python benchmarks/pipeline.py --json pipeline.json
    python benchmarks/pipeline.py --quick --device cpu

On CUDA: each item is an array of page-locked memory that goes to the device, through a chain of products whose length
is chosen so that computing takes about as long as a copy, and back to page-locked memory. Beside the pipeline each
stage by itself, with as many items in flight; the figure is the time of the slowest stage over that of the pipeline. On
the CPU device, whose stages share the cores, the same is measured, and the pipeline beside a hand-written asyncio loop
over the same calls, with as many items in flight. So that overlapping can be measured without a GPU, too, there are
three engines that do one item after the other in 3, 4 and 3 ms without using the CPU. The last table has a stage that
returns at once: what an item costs the host.
"""

import argparse
import asyncio
import collections
import time
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np
from _harness import Bar, arguments, interleave, kind_of, ratios, spread, table, tell_bars
from _record import Record

import callboard as cb

IN_FLIGHT = 4
Timed = Callable[[], Awaitable[float]]


def _extend(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--mib", type=float, help="size of an item (64; on the CPU or with --quick 0.25)")
    parser.add_argument("--items", type=int, help="items in a round (100; with --quick 20)")


class Job:
    """The stages over one device.

    Args:
        gpu: The device.
        side: Rows and columns of an item.
        items: Items in a round.
    """

    def __init__(self, gpu: cb.Device, side: int, items: int) -> None:
        self.gpu = gpu
        self.items = items
        rng = np.random.default_rng(1)
        self.weights = gpu.put((rng.standard_normal((side, side)) / side**0.5).astype("f4"))
        # One pair of host arrays for each item in flight, and one for the item that is being taken.
        self.sources = [gpu.host_empty((side, side)) for _ in range(IN_FLIGHT + 1)]
        self.targets = [gpu.host_empty((side, side)) for _ in range(IN_FLIGHT + 1)]
        for source in self.sources:
            source[:] = rng.standard_normal((side, side))
        self.products = 1

    def h2d(self, n: int) -> tuple[int, cb.GpuRef]:
        return n, self.gpu.put(self.sources[n % len(self.sources)])

    def compute(self, given: tuple[int, cb.GpuRef]) -> tuple[int, cb.GpuRef]:
        n, x = given
        for _ in range(self.products):
            x = self.gpu.blas.gemm(x, self.weights)
        return n, x

    def d2h(self, given: tuple[int, cb.GpuRef]) -> Any:
        n, x = given
        return x.get(out=self.targets[n % len(self.targets)])

    async def whole(self) -> float:
        pipeline = cb.PipelineExecutor[Any](self.h2d, self.compute, self.d2h, in_flight=IN_FLIGHT)
        return await _timed(pipeline.run(range(self.items)), self.items)

    async def by_hand(self) -> float:
        """As one would write it: calls in order, and a queue of replies as long as items are in flight."""
        waiting: collections.deque[Any] = collections.deque()
        start = time.perf_counter()
        for n in range(self.items):
            if len(waiting) == IN_FLIGHT:
                await waiting.popleft()
            waiting.append(self.d2h(self.compute(self.h2d(n))))
        while waiting:
            await waiting.popleft()
        return (time.perf_counter() - start) / self.items

    async def stage(self, call: Callable[[int], Any]) -> float:
        """Seconds for an item of one stage by itself."""
        waiting: collections.deque[Any] = collections.deque()
        start = time.perf_counter()
        for n in range(self.items):
            if len(waiting) == IN_FLIGHT:
                await waiting.popleft()
            waiting.append(call(n))
        while waiting:
            await waiting.popleft()
        return (time.perf_counter() - start) / self.items

    async def stages(self) -> dict[str, Timed]:
        """Each stage by itself."""
        x = await self.gpu.put(self.sources[0])
        return {
            "H2D": lambda: self.stage(lambda n: self.h2d(n)[1]),
            "compute": lambda: self.stage(lambda n: self.compute((n, x))[1]),
            "D2H": lambda: self.stage(lambda n: self.d2h((n, x))),
        }


ENGINES = {"H2D": 3e-3, "compute": 4e-3, "D2H": 3e-3}
"""Seconds for an item."""


class Engine:
    """Does one item after the other, as a copy engine does; what waits for it does not hold it up.

    Args:
        seconds: For an item.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._free = 0.0

    async def __call__(self, item: int) -> int:
        self._free = max(self._free, time.perf_counter()) + self._seconds
        await asyncio.sleep(self._free - time.perf_counter())
        return item


async def _engines(items: int) -> float:
    """Time of the slowest engine over that of the pipeline, for an item."""
    pipeline = cb.PipelineExecutor[int](*(Engine(seconds) for seconds in ENGINES.values()), in_flight=IN_FLIGHT)
    return max(ENGINES.values()) / await _timed(pipeline.run(range(items)), items)


async def _timed(results: Any, items: int) -> float:
    start = time.perf_counter()
    count = 0
    async for _ in results:
        count += 1
    assert count == items
    return (time.perf_counter() - start) / items


async def _pipeline_of_nothing(items: int) -> float:
    return await _timed(cb.PipelineExecutor[int](lambda n: n, in_flight=IN_FLIGHT).run(range(items)), items)


async def _loop_of_nothing(items: int) -> float:
    """Tasks behind a semaphore, collected in order: what the pipeline does, without its guarantees."""
    room = asyncio.Semaphore(IN_FLIGHT)

    async def one(n: int) -> int:
        return n

    tasks: collections.deque[asyncio.Task[int]] = collections.deque()
    start = time.perf_counter()
    for n in range(items):
        await room.acquire()
        tasks.append(asyncio.create_task(one(n)))
        if len(tasks) == IN_FLIGHT:
            await tasks.popleft()
            room.release()
    for task in tasks:
        await task
    return (time.perf_counter() - start) / items


def micros(seconds: float) -> str:
    return f"{seconds * 1e6:.1f} us"


def main() -> None:
    given = arguments(__doc__, rounds=5, extend=_extend)
    kind = kind_of(given.device)
    small = given.quick or kind == "cpu"
    side = int(((given.mib or (0.25 if small else 64)) * (1 << 20) / 4) ** 0.5)
    items = given.items or (20 if given.quick else 100)
    record = Record("pipeline", given)
    record["item_bytes"] = side * side * 4
    bars: list[Bar] = []
    with asyncio.Runner() as runner:
        system = cb.System("pipeline")

        async def opened() -> Job:
            await system.start()
            job = Job(await system.device(given.device), side, items)
            measures = await job.stages()
            for _ in range(2):  # the first round warms up
                found = {name: await measure() for name, measure in measures.items()}
            if kind == "cuda":
                copies = max(found["H2D"], found["D2H"])
                job.products = max(1, round(copies / found["compute"]))
            return job

        job = runner.run(opened())
        record["products"] = job.products
        subjects: dict[str, Timed] = {**runner.run(job.stages()), "pipeline": job.whole, "by hand": job.by_hand}

        def once(measure: Timed) -> Callable[[], float]:
            async def run() -> float:
                return await measure()

            return lambda: runner.run(run())

        found = interleave({name: once(measure) for name, measure in subjects.items()}, given.rounds + 1, "pipeline")
        found = {name: values[1:] or values for name, values in found.items()}
        title = f"{side} x {side} f32, {job.products} products, {IN_FLIGHT} in flight: seconds for an item"
        record["items"] = table(title, found, micros, "by hand")
        slowest = [max(found[name][n] for name in ("H2D", "compute", "D2H")) for n in range(len(found["H2D"]))]
        reached = spread([a / b for a, b in zip(slowest, found["pipeline"], strict=True)])
        total = [sum(found[name][n] for name in ("H2D", "compute", "D2H")) for n in range(len(found["H2D"]))]
        gain = spread([a / b for a, b in zip(total, found["pipeline"], strict=True)])
        record["slowest stage / pipeline"], record["all stages / pipeline"] = reached, gain
        print(f"\nslowest stage / pipeline {reached['median']:.3f}; all stages / pipeline {gain['median']:.3f}")
        if kind == "cuda":
            bars.append(Bar("slowest stage / pipeline", reached["median"], 0.9, at_least=True))
        by_hand = ratios(found, "by hand", "pipeline")
        bars.append(Bar("by hand / pipeline", by_hand and by_hand["median"], 0.9, at_least=True))
        engines = interleave({"engines": once(lambda: _engines(items))}, given.rounds, "engines")
        record["engines"] = table("slowest engine / pipeline", engines, lambda v: f"{v:.3f}", "engines")
        bars.append(Bar("slowest engine / pipeline", spread(engines["engines"])["median"], 0.9, at_least=True))
        many = 500 if given.quick else 5000
        host = interleave(
            {
                "pipeline": once(lambda: _pipeline_of_nothing(many)),
                "tasks by hand": once(lambda: _loop_of_nothing(many)),
            },
            given.rounds,
            "host",
        )
        record["host"] = table("an item whose stage returns at once", host, micros, "tasks by hand")
        runner.run(system.stop())
    record.done(tell_bars(bars))


if __name__ == "__main__":
    main()
