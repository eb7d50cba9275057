"""What a call of an ONNX model costs beside the model: `dev.engine` against ONNX Runtime alone, and against our ops.

    python benchmarks/engine_calls.py --json engine_calls.json
    python benchmarks/engine_calls.py --quick
    python benchmarks/engine_calls.py --device cuda --isolation thread

On a CPU, NumPy arrays in and out, three networks, each computed by one thread: `raw` is `session.run`, `awaited` is
`await context(x=x).get()`, `blocking` the same of `cb.sync`, `refs` a call whose input is on the device. `executor` is
`session.run` by a thread that a task awaits, and `nothing` an empty function there: what the way to another thread and
back costs on this machine. `64 at once` are calls whose results are awaited together. `process` is a device in a
process of its own.

On every device: a network of two layers by callboard's own engine, recorded, beside the same two ops recorded by hand:
calls that follow each other, and calls that are awaited one by one.

Subjects take turns. Figures are of one call: wall clock, and seconds of CPU of this process.
"""

import argparse
import asyncio
import concurrent.futures
import contextlib
import importlib.util
import time
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np
from _engine_subjects import chain, chain_by_hand, session
from _harness import Bar, Figures, arguments, interleave, kind_of, ratios, table, tell_bars
from _record import Record

import callboard as cb

NETWORKS = {"small": (16, 64, 1), "medium": (16, 256, 2), "large": (32, 512, 2)}
"""Rows, columns and layers."""
TWO_LAYERS = (8, 64, 2)
AT_ONCE = 64
MICRO = 1e6

Call = Callable[[], Awaitable[object]]


class Timed:
    """Calls that are timed; a CPU's time is kept beside the clock's.

    Attributes:
        cpu: Seconds of CPU of a call, by subject and round.
    """

    def __init__(self, runner: asyncio.Runner, calls: int) -> None:
        self._runner = runner
        self._calls = calls
        self.cpu: Figures = {}

    def awaited(self, name: str, call: Call, many: int = 1) -> Callable[[], float]:
        """Seconds of a call; ``call`` makes ``many``."""
        times = max(1, self._calls // many)

        async def run() -> float:
            began, used = time.perf_counter(), time.process_time()
            for _ in range(times):
                await call()
            self.cpu.setdefault(name, []).append((time.process_time() - used) / times / many)
            return (time.perf_counter() - began) / times / many

        return lambda: self._runner.run(run())

    def blocking(self, name: str, call: Callable[[], object]) -> Callable[[], float]:
        """Seconds of a call that blocks."""

        def run() -> float:
            began, used = time.perf_counter(), time.process_time()
            for _ in range(self._calls):
                call()
            self.cpu.setdefault(name, []).append((time.process_time() - used) / self._calls)
            return (time.perf_counter() - began) / self._calls

        return run


def calls_of(given: Any, record: Record) -> list[Bar]:
    """Networks of several sizes, by ONNX Runtime alone and through the actor."""
    bars: list[Bar] = []
    with contextlib.ExitStack() as stack:
        runner = stack.enter_context(asyncio.Runner())
        pool = stack.enter_context(concurrent.futures.ThreadPoolExecutor(1))
        waiting = stack.enter_context(cb.sync.device("cpu", isolation="thread"))
        near, apart = (
            runner.run(_opened(stack, runner, "cpu", isolation=isolation)) for isolation in ("thread", "process")
        )
        for title, (rows, columns, layers) in NETWORKS.items():
            data = chain(columns, layers)
            raw = session(data, 1)
            x = np.random.default_rng(0).standard_normal((rows, columns)).astype("f4")
            plans = [runner.run(_built(device, data)) for device in (near, apart)]
            context, far = near.engine.context(plans[0]), apart.engine.context(plans[1])
            blocked = waiting.engine.context(waiting.engine.build(data, engine="onnxruntime", threads=1).result())
            on_device = near.put(x)
            expected = raw.run(None, {"x": x})[0]

            async def in_executor(raw: Any = raw, x: Any = x) -> None:
                await asyncio.get_running_loop().run_in_executor(pool, raw.run, None, {"x": x})

            async def nothing() -> None:
                await asyncio.get_running_loop().run_in_executor(pool, int)

            async def awaited(context: Any = context, x: Any = x) -> Any:
                return await context(x=x).get()

            async def of_refs(context: Any = context, x: Any = on_device) -> None:
                await context(x=x)

            async def together(context: Any = context, x: Any = x) -> None:
                await asyncio.gather(*[context(x=x).get() for _ in range(AT_ONCE)])

            async def elsewhere(context: Any = far, x: Any = x) -> Any:
                return await context(x=x).get()

            for call in (awaited, elsewhere):
                for _ in range(30):  # sessions are opened, times are learned
                    np.testing.assert_allclose(runner.run(call()), expected, rtol=1e-5, atol=1e-5)
            for _ in range(30):
                np.testing.assert_allclose(blocked(x=x).get(), expected, rtol=1e-5, atol=1e-5)
            timed = Timed(runner, given.calls)
            subjects = {
                "raw": timed.blocking("raw", lambda raw=raw, x=x: raw.run(None, {"x": x})),  # type: ignore[misc]
                "awaited": timed.awaited("awaited", awaited),
                "blocking": timed.blocking("blocking", lambda context=blocked, x=x: context(x=x).get()),  # type: ignore[misc]
                "refs": timed.awaited("refs", of_refs),
                f"{AT_ONCE} at once": timed.awaited(f"{AT_ONCE} at once", together, AT_ONCE),
                "executor": timed.awaited("executor", in_executor),
                "nothing": timed.awaited("nothing", nothing),
                "process": timed.awaited("process", elsewhere),
            }
            found = interleave(subjects, given.rounds, title)
            record[title] = table(f"{title}: {rows} x {columns}, {layers} layers", found, _micro, "raw")
            record[f"{title}, CPU"] = table(f"{title}, CPU of this process", timed.cpu, _micro, "raw")
            bars += _bars(title, timed.cpu)
    return bars


def _bars(title: str, found: Figures) -> list[Bar]:
    """Of seconds of CPU: on a busy machine, those of the clock are what others leave."""
    bars = []
    for name in ("awaited", "blocking"):
        if min(found["raw"]) < 100e-6:
            more = min(found[name]) - min(found["raw"])
            bars.append(Bar(f"{title}, {name}: µs more than raw", more * MICRO, 15.0, at_least=False))
        else:
            ratio = ratios(found, "raw", name)
            median = None if ratio is None else ratio["median"]
            bars.append(Bar(f"{title}: raw to {name}", median, 0.97, at_least=True))
    return bars


async def _built(device: Any, data: bytes) -> Any:
    return await device.engine.build(data, engine="onnxruntime", threads=1)


async def _opened(stack: contextlib.ExitStack, runner: asyncio.Runner, name: str, **options: Any) -> Any:
    opening = cb.device(name, **options)
    device = await opening.__aenter__()
    stack.callback(lambda: runner.run(opening.__aexit__(None, None, None)))
    return device


def recorded_of(given: Any, record: Record) -> None:
    """Two layers by callboard's own engine, recorded, beside the same ops recorded by hand."""
    rows, columns, layers = TWO_LAYERS
    x = np.random.default_rng(0).standard_normal((rows, columns)).astype("f4")
    with contextlib.ExitStack() as stack:
        runner = stack.enter_context(asyncio.Runner())
        for isolation in given.isolation.split(","):
            device = runner.run(_opened(stack, runner, given.device, isolation=isolation))

            async def made(device: Any = device) -> tuple[Any, Any, Any]:
                plan = await device.engine.build(chain(columns, layers), engine="callboard")
                on_device = device.put(x)
                return (
                    device.engine.context(plan, record=device.record),
                    on_device,
                    await chain_by_hand(device, x, layers),
                )

            context, on_device, hand = runner.run(made())

            async def engine(context: Any = context, x: Any = on_device) -> None:
                await context(x=x)

            async def by_hand(hand: Any = hand) -> None:
                await hand.replay()

            async def engine_many(context: Any = context, x: Any = on_device) -> None:
                for _ in range(AT_ONCE - 1):
                    context(x=x)
                await context(x=x)

            async def by_hand_many(hand: Any = hand) -> None:
                for _ in range(AT_ONCE - 1):
                    hand.replay()
                await hand.replay()

            for call in (engine, by_hand, engine_many, by_hand_many):
                for _ in range(5):
                    runner.run(call())
            apart = float(np.abs(runner.run(_result(context(x=on_device))) - runner.run(_result(hand.replay()))).max())
            timed = Timed(runner, given.calls)
            subjects = {
                "by hand": timed.awaited("by hand", by_hand),
                "engine": timed.awaited("engine", engine),
                f"by hand, {AT_ONCE}": timed.awaited(f"by hand, {AT_ONCE}", by_hand_many, AT_ONCE),
                f"engine, {AT_ONCE}": timed.awaited(f"engine, {AT_ONCE}", engine_many, AT_ONCE),
            }
            found = interleave(subjects, given.rounds, isolation)
            title = f"two layers recorded, {isolation}"
            record[title] = table(title, found, _micro, "by hand")
            record[f"{title}, CPU"] = table(f"{title}, CPU of this process", timed.cpu, _micro, "by hand")
            print(f"  largest difference: {apart:.1e}")


async def _result(ref: Any) -> Any:
    return await ref.get()


def _micro(seconds: float) -> str:
    return f"{seconds * MICRO:.1f} µs"


def _extend(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--calls", type=int, default=256, help="of each round (default 256)")
    parser.add_argument("--isolation", default="thread,process", help="of the recorded ones")


def main() -> None:
    given = arguments(__doc__, rounds=9, extend=_extend)
    if given.quick:
        given.calls = min(given.calls, 64)
    record = Record("engine_calls", given)
    bars: list[Bar] = []
    if kind_of(given.device) == "cpu" and importlib.util.find_spec("onnxruntime") is not None:
        bars = calls_of(given, record)
    recorded_of(given, record)
    record.done(tell_bars(bars))


if __name__ == "__main__":
    main()
