"""All-reduces over several devices beside torch.distributed and NCCL itself, and a world that lost a rank.

    python benchmarks/collectives.py --json collectives.json
    CALLBOARD_CPU_DEVICES=4 python benchmarks/collectives.py --device cpu
    python benchmarks/collectives.py --device cpu --quick

Each all-reduce of f32, in place, is waited for before the next one. Ranks are processes, of callboard too: on GPUs all
that there are, on CPUs as many as ``CALLBOARD_CPU_DEVICES`` says (2).

The other libraries poll until an all-reduce has ended. "callboard" has the default settings: the loop polls for at most
0.4 ms. "callboard, polling" polls for as long as the others (``linger``).
"""

import asyncio
import importlib.util
import itertools
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from _harness import Bar, arguments, interleave, kind_of, ratios, table, tell_bars
from _record import Record

import callboard as cb
from callboard.core import registry

SMALL = 8 << 10
POLLING = 0.05
"""Seconds; longer than any of the all-reduces."""


class Ranks:
    """The processes of another library.

    Args:
        library: ``"torch"`` or ``"nccl4py"``.
        kind: ``"cpu"`` or ``"cuda"``.
        size: Ranks.
    """

    def __init__(self, library: str, kind: str, size: int, folder: str) -> None:
        command = [sys.executable, str(Path(__file__).with_name("_rank.py")), library]
        file = str(Path(folder) / library)
        self._processes = [
            subprocess.Popen([*command, str(rank), str(size), file, kind], stdin=-1, stdout=-1, text=True)
            for rank in range(size)
        ]
        self._lines()

    def all_reduce(self, nbytes: int, count: int) -> float:
        """Seconds of one, of the slowest rank."""
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.write(f"{nbytes} {count}\n")
            process.stdin.flush()
        return max(map(float, self._lines())) / count

    def _lines(self) -> list[str]:
        found = [process.stdout.readline() for process in self._processes if process.stdout is not None]
        if not all(found):
            raise RuntimeError("a rank of the other library has ended")
        return found

    def __enter__(self) -> "Ranks":
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.kill()
            process.communicate()


async def ours(world: cb.World, nbytes: int, count: int) -> float:
    """Seconds of one all-reduce."""
    xs = [device.full(nbytes // 4, 1.0) for device in world.devices]
    await world.all_reduce(xs, out=xs)
    began = time.perf_counter()
    for _ in range(count):
        await world.all_reduce(xs, out=xs)
    return (time.perf_counter() - began) / count


async def back(world: cb.World) -> float:
    """Seconds from a killed rank until the world takes collectives again."""
    device = world.devices[-1]
    await device.standby_ready()
    began, formation = time.perf_counter(), world.formation
    host = device.health().host_pid
    assert host is not None
    os.kill(host, signal.SIGKILL)
    while world.formation == formation:
        try:
            await world.barrier()
        except cb.ContextLost:
            await world.ready()
    return time.perf_counter() - began


async def opened(system: cb.System, kind: str, size: int, **more: Any) -> cb.World:
    """A world of the first devices, each in a process of its own with a standby."""
    how: dict[str, Any] = {"isolation": "process", "standby": "hot" if kind == "cuda" else "warm", "max_restarts": 1000}
    how |= more
    return await cb.world([await system.device(f"{kind}:{rank}", **how) for rank in range(size)])


def main() -> None:
    given = arguments(__doc__, rounds=5)
    kind = kind_of(given.device)
    if kind == "cpu":
        os.environ.setdefault("CALLBOARD_CPU_DEVICES", "2")
    size = len(registry.backend(kind).devices())
    large = (1 << 20) if given.quick else (1 << 30) if kind == "cuda" else (64 << 20)
    counts = {SMALL: 20 if given.quick else 500, large: 2 if given.quick else 5}
    record = Record("collectives", given)
    others = [name for name in ("torch", "nccl4py") if importlib.util.find_spec(name if name == "torch" else "nccl")]
    if kind == "cpu":
        others = [name for name in others if name == "torch"]
    bars: list[Bar] = []
    with asyncio.Runner() as runner, ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        system = runner.run(cb.System("collectives").__aenter__())
        stack.callback(lambda: runner.run(system.__aexit__(None, None, None)))
        world = runner.run(opened(system, kind, size))
        stack.callback(lambda: runner.run(world.close()))
        eager = runner.run(cb.System("polling").__aenter__())
        stack.callback(lambda: runner.run(eager.__aexit__(None, None, None)))
        polling = runner.run(opened(eager, kind, size, standby=None, linger=POLLING))
        stack.callback(lambda: runner.run(polling.close()))
        peers = {name: stack.enter_context(Ranks(name, kind, size, folder)) for name in others}
        for nbytes, count in counts.items():
            subjects: dict[str, Callable[[], float]] = {
                "callboard": lambda n=nbytes, c=count: runner.run(ours(world, n, c)),  # type: ignore[misc]
                "callboard, polling": lambda n=nbytes, c=count: runner.run(ours(polling, n, c)),  # type: ignore[misc]
            }
            for name, ranks in peers.items():
                subjects[name] = lambda r=ranks, n=nbytes, c=count: r.all_reduce(n, c)  # type: ignore[misc]
            title = f"all-reduce of {nbytes >> 10:,} KiB, {size} ranks"
            found = interleave(subjects, given.rounds, title)
            record[title] = table(title, found, micros, "torch")
            for subject, name in itertools.product(("callboard", "callboard, polling"), peers):
                ratio = ratios(found, subject, name)
                value = None if ratio is None else ratio["median"]
                what = f"{title}, {subject}"
                if nbytes == SMALL and name == "torch":
                    bars.append(Bar(f"{what}: time beside {name}", value, 1.5, at_least=False))
                elif nbytes != SMALL:
                    speed = None if value is None else 1 / value
                    bars.append(Bar(f"{what}: speed beside {name}", speed, 0.97, at_least=True))
        found = interleave({"callboard": lambda: runner.run(back(world))}, given.rounds, "a rank lost")
        record["back"] = table("the world back after a killed rank", found, seconds, "callboard")
        bars.append(Bar("the world back after a killed rank, s", max(found["callboard"]), 2.0, at_least=False))
    record.done(tell_bars(bars))


def micros(value: float) -> str:
    return f"{value * 1e6:.1f} us"


def seconds(value: float) -> str:
    return f"{value:.3f} s"


if __name__ == "__main__":
    main()
