"""Simulations: images beside OpenCV, particles beside Numba and Warp, neighbours and a hash map beside SciPy and dict.

    python benchmarks/realtime.py --device cpu --json realtime.json
    python benchmarks/realtime.py --device cpu --clock cpu
    python benchmarks/realtime.py --device cuda --particles 16000000 --pixels 2160

OpenCV, Numba and Warp are measured where they are installed, on one thread each; ours takes all cores, or as many as
``OMP_NUM_THREADS`` says. A frame of callboard's begins and ends in host
memory, as OpenCV's does; ``on the device`` it stays there. A step of ours is a message; ``of 20`` are in one.
"""

import argparse
import asyncio
import importlib
import importlib.util
import time
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import numpy as np
from _harness import Bar, arguments, interleave, ratios, table, tell_bars
from _record import Record
from scipy.spatial import cKDTree

import callboard as cb

STEPS = 20
KERNEL = np.outer([1, 4, 6, 4, 1], [1, 4, 6, 4, 1]) / 256


CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}


class Meter(NamedTuple):
    """How long a subject is measured in a round, and by which clock."""

    seconds: float
    clock: Callable[[], float]


def _extend(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--particles", type=int, default=100_000)
    parser.add_argument("--clock", choices=CLOCKS, default="wall", help="cpu: of all threads; on a busy machine")
    parser.add_argument("--pixels", type=int, default=1080, help="rows of an image (default 1080)")


def timed(function: Callable[[], Any], per: int, meter: Meter) -> Callable[[], float]:
    """Seconds of a call, divided by ``per``: the best of as many as there is time for."""

    def run() -> float:
        times, end = [], time.perf_counter() + meter.seconds
        while len(times) < 3 or time.perf_counter() < end:
            start = meter.clock()
            function()
            times.append(meter.clock() - start)
        return min(times) / per

    return run


def waiting(runner: asyncio.Runner, call: Callable[[], Awaitable[Any]], per: int, meter: Meter) -> Callable[[], float]:
    """The same for a coroutine function, inside the loop."""

    async def some() -> float:
        times, end = [], time.perf_counter() + meter.seconds
        while len(times) < 3 or time.perf_counter() < end:
            start = meter.clock()
            await call()
            times.append(meter.clock() - start)
        return min(times) / per

    return lambda: runner.run(some())


def filters(given: Any, runner: asyncio.Runner, gpu: cb.Device, meter: Meter) -> dict[str, Callable[[], float]]:
    """A 5 by 5 filter of an RGB frame."""
    image = np.random.default_rng(0).integers(0, 256, (given.pixels, given.pixels * 16 // 9, 3), dtype="u1")
    pipe = cb.ImageFilterPipeline(gpu, KERNEL, border="mirror")

    async def put() -> Any:
        return await gpu.put(image)

    sent = runner.run(put())

    async def there() -> None:
        await pipe.process_gpu(sent)

    found = {
        "callboard": waiting(runner, lambda: pipe.process(image), 1, meter),
        "on the device": waiting(runner, there, 1, meter),
    }
    try:
        cv2 = importlib.import_module("cv2")
    except ImportError:
        return found
    cv2.setNumThreads(1)
    weights = KERNEL.astype("f4")
    return found | {"OpenCV": timed(lambda: cv2.filter2D(image, -1, weights), 1, meter)}


def particles(given: Any, runner: asyncio.Runner, gpu: cb.Device, meter: Meter) -> dict[str, Callable[[], float]]:
    """A step of particles that fall on a floor."""
    rng = np.random.default_rng(0)
    x, v = rng.uniform(0, 1, (2, given.particles, 3)).astype("f4")
    config = cb.ParticleConfig(colliders=(cb.Plane(),))
    simulation = cb.ParticleSystemActor(gpu, x, v, config=config, snapshot_every=1_000_000)
    runner.run(simulation.start())
    found = {
        "callboard": waiting(runner, lambda: simulation.step(1e-4), 1, meter),
        f"of {STEPS}": waiting(runner, lambda: simulation.step(1e-4, STEPS), STEPS, meter),
    }
    if gpu.backend == "cpu" and importlib.util.find_spec("numba"):
        from numba import njit

        @njit(error_model="numpy")
        def by_hand(x: Any, v: Any, n: int) -> None:
            dt, g, zero, left = np.float32(1e-4), np.float32(-9.8), np.float32(0), np.float32(-0.5)
            for _ in range(n):
                for i in range(x.shape[1]):
                    v[1, i] += g * dt
                    x[0, i] += v[0, i] * dt
                    x[1, i] += v[1, i] * dt
                    x[2, i] += v[2, i] * dt
                    if x[1, i] < zero:
                        x[1, i] = zero
                        v[1, i] *= left if v[1, i] < zero else np.float32(1)

        held = np.ascontiguousarray(x.T), np.ascontiguousarray(v.T)
        by_hand(*held, 1)
        found["Numba by hand"] = timed(lambda: by_hand(*held, STEPS), STEPS, meter)
    if importlib.util.find_spec("warp"):
        steps = importlib.import_module("_warp_particles").stepper(x, v, "cpu" if gpu.backend == "cpu" else "cuda:0")
        found["Warp"] = timed(lambda: steps(STEPS), STEPS, meter)
    return found


def neighbours(given: Any, runner: asyncio.Runner, gpu: cb.Device, meter: Meter) -> dict[str, Callable[[], float]]:
    """Put points into cells, and count those near each: about 30."""
    n = given.particles
    x = np.random.default_rng(0).uniform(0, 1, (n, 3))
    radius = (30 / n / 4.19) ** (1 / 3)
    index = cb.SpatialIndexActor(gpu, radius)

    async def ours() -> None:
        index.rebuild(x)
        await index.count_within(x, radius)

    found = {
        "callboard": waiting(runner, ours, 1, meter),
        "cKDTree": timed(lambda: cKDTree(x).query_ball_point(x, radius, return_length=True), 1, meter),
    }
    if importlib.util.find_spec("warp"):
        warp = importlib.import_module("_warp_neighbours")
        found["Warp"] = timed(warp.counter(x, radius, "cpu" if gpu.backend == "cpu" else "cuda:0"), 1, meter)
    return found


def hash_map(given: Any, runner: asyncio.Runner, gpu: cb.Device, meter: Meter) -> dict[str, Callable[[], float]]:
    """Give keys values, and find all of them."""
    n = given.particles * 10
    keys = np.random.default_rng(0).permutation(n).astype("u8") * np.uint64(0x9E3779B97F4A7C15)
    values = np.arange(n)
    table = cb.GpuHashMapActor(gpu, value="i8", capacity=n, snapshot_every=1 << 40)
    runner.run(table.start())

    async def ours() -> None:
        await table.clear()
        await table.insert_or_assign(keys, values)
        await table.find(keys)

    def by_dict() -> None:
        held = dict(zip(keys.tolist(), values.tolist(), strict=True))
        np.array([held[key] for key in keys.tolist()])

    def by_sorting() -> None:
        order = np.argsort(keys)
        values[order][np.searchsorted(keys[order], keys)]

    return {
        "callboard": waiting(runner, ours, 1, meter),
        "dict": timed(by_dict, 1, meter),
        "NumPy": timed(by_sorting, 1, meter),
    }


def micros(seconds: float) -> str:
    return f"{seconds * 1e6:.1f} us"


def main() -> None:
    given = arguments(__doc__, rounds=7, extend=_extend)
    if given.quick:
        given.particles, given.pixels = min(given.particles, 10_000), min(given.pixels, 90)
    meter = Meter(0.05 if given.quick else 0.4, CLOCKS[given.clock])
    record = Record("realtime", given)
    bars: list[Bar] = []
    with asyncio.Runner() as runner:
        opened = cb.device(given.device, isolation="thread")

        async def enter() -> cb.Device:
            return await opened.__aenter__()

        async def leave() -> None:
            await opened.__aexit__(None, None, None)

        gpu = runner.run(enter())
        try:
            images = interleave(filters(given, runner, gpu, meter), given.rounds, "images")
            record["images"] = table(f"5 x 5, RGB, {given.pixels} rows, a frame", images, micros, "callboard")
            moved = interleave(particles(given, runner, gpu, meter), given.rounds, "particles")
            record["particles"] = table(f"{given.particles} particles, a step", moved, micros, f"of {STEPS}")
            near = interleave(neighbours(given, runner, gpu, meter), given.rounds, "neighbours")
            record["neighbours"] = table(f"{given.particles} points, built and counted", near, micros, "callboard")
            held = interleave(hash_map(given, runner, gpu, meter), given.rounds, "hash map")
            record["hash map"] = table(f"{10 * given.particles} keys, inserted and found", held, micros, "callboard")
        finally:
            runner.run(leave())
    ratio = ratios(images, "OpenCV", "callboard")
    bars.append(Bar("speed of a frame, to OpenCV", ratio and ratio["median"], 0.9, at_least=True))
    for peer, limit in (("Warp", 1.9), ("Numba by hand", 0.97)):
        ratio = ratios(moved, peer, f"of {STEPS}")
        bars.append(Bar(f"speed of particles, to {peer}", ratio and ratio["median"], limit, at_least=True))
    for found, peer, limit in ((near, "Warp", 1.0), (near, "cKDTree", 9), (held, "dict", 15), (held, "NumPy", 5)):
        ratio = ratios(found, peer, "callboard")
        bars.append(Bar(f"speed to {peer}", ratio and ratio["median"], limit, at_least=True))
    record.done(tell_bars(bars))


if __name__ == "__main__":
    main()
