"""What a busy resident actor costs the library ops beside it, and what a call of one costs.

    python benchmarks/resident.py --json resident.json
    python benchmarks/resident.py --quick --device cpu

One small f32 product after the other, each waited for, on a device whose resident actor does nothing; runs a loop of
pure Python, which keeps the GIL; or multiplies matrices with NumPy, which does not. Then calls of an actor: nothing,
with an array of 64 KiB, with one of 64 MiB both ways. Isolations are measured in turn, round by round.
"""

import asyncio
import os
import tempfile
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from _harness import arguments, interleave, table
from _record import Record

import callboard as cb

SMALL = 64


class Busy(cb.ResidentActor):
    """Works until the file that it was given is gone: its own mailbox waits behind the turn that works."""

    def spin(self, flag: str) -> int:
        """A loop of pure Python."""
        n = 0
        while os.path.exists(flag):
            for _ in range(200):
                n += sum(range(100))
        return n

    def multiply(self, flag: str) -> int:
        """Products of NumPy."""
        n = 0
        a = np.ones((256, 256), np.float32)
        while os.path.exists(flag):
            for _ in range(10):
                n += int((a @ a)[0, 0])
        return n

    def nothing(self) -> None:
        """Return at once."""

    def echo(self, array: Any) -> Any:
        """Send it back."""
        return array


LOADS: dict[str, Any] = {"idle": None, "python": Busy.spin, "numpy": Busy.multiply}


async def _asks(dev: cb.Device, count: int) -> list[float]:
    a = dev.put(np.ones((SMALL, SMALL), np.float32))
    out = dev.empty((SMALL, SMALL))
    times = []
    for _ in range(count):
        began = time.perf_counter()
        await dev.blas.gemm(a, a, out=out)
        times.append(time.perf_counter() - began)
    return sorted(times)


async def beside(device: str, isolation: Any, load: str, count: int) -> dict[str, float]:
    """Quantiles of an ask, seconds, with the actor under this load."""
    async with cb.device(device, isolation=isolation, standby=None) as dev:
        busy = dev.actor_of(cb.Props(Busy))
        await busy.call(Busy.nothing)
        await _asks(dev, 50)
        with tempfile.NamedTemporaryFile() as flag:
            method = LOADS[load]
            running = None if method is None else busy.call(method, flag.name)
            times = await _asks(dev, count)
        if running is not None:
            await running
    return {"median": times[len(times) // 2], "p99": times[int(len(times) * 0.99)], "max": times[-1]}


async def call(device: str, isolation: Any, nbytes: int, count: int) -> float:
    """Median seconds of a call with an array of ``nbytes`` both ways; 0: without."""
    async with cb.device(device, isolation=isolation, standby=None) as dev:
        busy = dev.actor_of(cb.Props(Busy))
        array = np.ones(nbytes, np.uint8)
        times = []
        for _ in range(count + 2):
            began = time.perf_counter()
            await (busy.call(Busy.echo, array) if nbytes else busy.call(Busy.nothing))
            times.append(time.perf_counter() - began)
    return sorted(times[2:])[count // 2]


def main() -> None:
    """Measure and print."""
    given: Any = arguments(__doc__, rounds=5)
    isolations = ("process", "thread")
    record = Record("resident", given)
    count = 1000 if given.quick else 5000
    quantiles: dict[str, dict[str, list[float]]] = {"median": {}, "p99": {}, "max": {}}

    def measured(isolation: str, load: str) -> Callable[[], float]:
        def run() -> float:
            found = asyncio.run(beside(given.device, isolation, load, count))
            for name, value in found.items():
                quantiles[name].setdefault(f"{isolation}, {load}", []).append(value)
            return found["p99"]

        return run

    title = f"ask of a {SMALL}x{SMALL} product beside an actor"
    rounds = interleave({f"{i}, {load}": measured(i, load) for i in isolations for load in LOADS}, given.rounds, title)
    complete = len(rounds["process, idle"])
    beside_it: dict[str, Any] = {}
    for name, found in quantiles.items():
        figures = {subject: values[:complete] for subject, values in found.items()}
        beside_it[f"{title}, {name}"] = table(f"{title}, {name}: microseconds", figures, _us, "process, idle")
    record.update(beside_it)
    for nbytes, times in ((0, 1000), (64 << 10, 500), (64 << 20, 5)):
        what = f"call with {nbytes:,} bytes both ways"
        subjects = {
            i: lambda i=i, n=nbytes, t=times: asyncio.run(call(given.device, i, n, t))  # type: ignore[misc]
            for i in isolations
        }
        record[what] = table(f"{what}: microseconds", interleave(subjects, given.rounds, what), _us, "process")
    record.done([])


def _us(seconds: float) -> str:
    return f"{seconds * 1e6:.1f}"


if __name__ == "__main__":
    main()
