"""Cost of a resident actor's call, and of a busy actor to the library ops beside it.

    python benchmarks/resident.py --json resident.json
    python benchmarks/resident.py --quick --device cpu

A model (a perceptron 512-2048-512 in f32, NumPy arrays in and out) is called plainly, in the same process; behind
``multiprocessing.Pipe``; behind a prototype whose two ends share memory and spin; and as a resident actor: in the
device's host, which is a process or a thread, and in a process of its own. It is made with torch, or with NumPy on the
CPU where torch is not installed. Each subject is in a process of its own, and they are measured in turn, round by
round: a call that does nothing; batches of 1, 8 and 256, awaited one by one, and 32 at once (32 in a row where a call
is answered before the next); arrays that are sent back.

Then one small f32 product after the other, each waited for, on a device whose resident actor does nothing; runs a loop
of pure Python, which keeps the GIL; or multiplies matrices with NumPy, which does not; and the same with the actor in a
process of its own. Last, a call with 64 MiB
both ways.
"""

import argparse
import asyncio
import os
import tempfile
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from _harness import Bar, Figures, arguments, interleave, kind_of, ratios, spread, table, tell_bars
from _record import Record
from _resident_model import engine
from _worker import Worker, workers

import callboard as cb

SMALL = 64
HUGE = 64 << 20

ISOLATIONS = ("process", "thread")
PLACES = (*ISOLATIONS, "own")
"""Of the actor: in the device's host, in either isolation, or in a process of its own."""

SUBJECTS = ("plain", "pipe", "spinning", *PLACES)
BATCHES = (1, 8, 256)
ECHOES = (128 << 10, 512 << 10)

SLOWER = 2.0
"""Most times that a product may take beside a busy actor that has a process of its own."""

BESIDE = 45.0
"""Most microseconds that a call of a small batch may take longer than the model itself."""


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


async def beside(device: str, place: str, load: str, count: int) -> dict[str, float]:
    """Quantiles of an ask, seconds, with the actor under this load."""
    isolation: Any = "process" if place == "own" else place
    async with cb.device(device, isolation=isolation, standby=None) as dev:
        busy = dev.actor_of(cb.Props(Busy), own_process=place == "own")
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
    """Median seconds of a call with an array of ``nbytes`` both ways."""
    async with cb.device(device, isolation=isolation, standby=None) as dev:
        busy = dev.actor_of(cb.Props(Busy))
        array = np.ones(nbytes, np.uint8)
        times = []
        for _ in range(count + 2):
            began = time.perf_counter()
            await busy.call(Busy.echo, array)
            times.append(time.perf_counter() - began)
    return sorted(times[2:])[count // 2]


def _rows(quick: bool) -> dict[str, tuple[str, dict[str, Any]]]:
    """What is measured, by title: the name of the measurement and its settings."""
    less = 20 if quick else 1
    rows: dict[str, tuple[str, dict[str, Any]]] = {"empty call": ("empty", {"count": 4000 // less})}
    for batch in BATCHES:
        count = (400 if batch > 100 else 2000) // less
        rows[f"batch {batch}, one by one"] = "model", {"rows": batch, "count": count, "at_once": False}
        rows[f"batch {batch}, 32 at once"] = "model", {"rows": batch, "count": max(1, count // 20), "at_once": True}
    for nbytes in ECHOES:
        rows[f"echo of {nbytes >> 10} KiB"] = "echo", {"nbytes": nbytes, "count": 1000 // less}
    return rows


def calls(given: Any, record: Record) -> list[Bar]:
    """Measure the calls; gives what must be reached on CUDA."""
    made_with, on = given.model or engine(), kind_of(given.device)
    if made_with == "numpy":
        print(f"{'' if given.model else 'torch is not installed: '}the model is made with NumPy, and runs on the CPU")
    vendors_name = given.device if given.device.startswith("cuda") else on
    found: dict[str, Figures] = {}
    command: dict[str, tuple[str, ...]] = {}
    for name in SUBJECTS:
        command[name] = ("_subject_resident.py", name, made_with, given.device, vendors_name)
    with workers(command) as running:
        for title, (what, settings) in _rows(given.quick).items():

            def measured(worker: Worker, what: str = what, settings: dict[str, Any] = settings) -> Callable[[], float]:
                return lambda: worker.measure(what, **settings)

            found[title] = interleave({n: measured(w) for n, w in running.items()}, given.rounds, title)
            to = "plain" if what == "model" else "pipe"
            record[title] = table(f"{title}, {made_with}: microseconds", found[title], _us, to)
    return _bars(found, measured_here=on == "cuda" and made_with == "torch")


def _bars(found: dict[str, Figures], *, measured_here: bool) -> list[Bar]:
    """What must be reached, in medians over the rounds; ratios and differences are taken round by round."""
    bars: list[Bar] = []

    def at_most(what: str, value: float, limit: float) -> None:
        bars.append(Bar(what, value if measured_here else None, limit, at_least=False))

    for name in ISOLATIONS:
        empty = spread(found["empty call"][name])["median"] * 1e6
        at_most(f"empty call, {name}, us", empty, 45 if name == "process" else 30)
        for title, figures in found.items():
            if title in ("batch 1, one by one", "batch 8, one by one"):
                more = [a - b for a, b in zip(figures[name], figures["plain"], strict=True)]
                at_most(f"{title}, {name}, us more than plain", spread(more)["median"] * 1e6, BESIDE)
            elif title.startswith("batch"):
                at_most(f"{title}, {name}, of plain", _median_ratio(figures, name, "plain"), 1.1)
            elif title == "echo of 512 KiB":
                at_most(f"{title}, {name}, us", spread(figures[name])["median"] * 1e6, 200)
            at_most(f"{title}, {name}, of the pipe", _median_ratio(figures, name, "pipe"), 1.0)
    return bars


def _median_ratio(figures: Figures, of: str, to: str) -> float:
    ratio = ratios(figures, of, to)
    assert ratio is not None
    return ratio["median"]


def products(given: Any, record: Record) -> list[Bar]:
    """Measure library products beside an actor; gives what must be reached on CUDA."""
    count = 1000 if given.quick else 5000
    quantiles: dict[str, dict[str, list[float]]] = {"median": {}, "p99": {}, "max": {}}

    def measured(place: str, load: str) -> Callable[[], float]:
        def run() -> float:
            found = asyncio.run(beside(given.device, place, load, count))
            for name, value in found.items():
                quantiles[name].setdefault(f"{place}, {load}", []).append(value)
            return found["p99"]

        return run

    title = f"ask of a {SMALL}x{SMALL} product beside an actor"
    rounds = interleave({f"{p}, {load}": measured(p, load) for p in PLACES for load in LOADS}, given.rounds, title)
    complete = len(rounds["process, idle"])
    beside_it: dict[str, Any] = {}
    for name, found in quantiles.items():
        figures = {subject: values[:complete] for subject, values in found.items()}
        beside_it[f"{title}, {name}"] = table(f"{title}, {name}: microseconds", figures, _us, "process, idle")
    record.update(beside_it)
    medians = {subject: values[:complete] for subject, values in quantiles["median"].items()}
    bars = []
    for load in LOADS:
        if load != "idle":
            ratio = _median_ratio(medians, f"own, {load}", "own, idle") if kind_of(given.device) == "cuda" else None
            bars.append(Bar(f"product beside own, {load}, of idle", ratio, SLOWER, at_least=False))
    return bars


def _extend(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", choices=("torch", "numpy"), help="what the model is made with; default: torch")


def main() -> None:
    """Measure and print."""
    given: Any = arguments(__doc__, rounds=5, extend=_extend)
    record = Record("resident", given)
    bars = calls(given, record)
    bars += products(given, record)
    what = f"call with {HUGE:,} bytes both ways"

    def huge(isolation: str) -> Callable[[], float]:
        return lambda: asyncio.run(call(given.device, isolation, HUGE, 5))

    found = interleave({i: huge(i) for i in ISOLATIONS}, given.rounds, what)
    record[what] = table(f"{what}: microseconds", found, _us, "process")
    record.done(tell_bars(bars))


def _us(seconds: float) -> str:
    return f"{seconds * 1e6:.1f}"


if __name__ == "__main__":
    main()
