"""Gain of continuous batching over batches of whole requests, and its cost relative to a specialised loop.

    python benchmarks/continuous.py --json continuous.json
    python benchmarks/continuous.py --quick

Sequences of unequal lengths (geometric, capped) run through layers in NumPy, one vector per sequence and step. "loop"
fills free places of a batch by hand, and has no server. "continuous" is a ContinuousBatchingServer, "streamed" the same
read part by part. "whole" is a DynamicBatchingServer, whose batches run until their longest sequence ends. Figures are
parts per second.
"""

import argparse
import asyncio
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from _harness import Bar, arguments, interleave, ratios, table, tell_bars
from _record import Record

import callboard as cb


def _extend(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--width", type=int, default=512, help="of a vector (default 512)")
    parser.add_argument("--depth", type=int, default=4, help="layers (default 4)")
    parser.add_argument("--sequences", type=int, default=256)
    parser.add_argument("--places", type=int, default=16, help="sequences that run at once (default 16)")
    parser.add_argument("--mean", type=int, default=24, help="parts of a sequence in the mean (default 24)")


def main() -> None:
    given = arguments(__doc__, rounds=5, extend=_extend)
    if given.quick:
        given.width, given.depth, given.sequences = min(given.width, 128), 2, min(given.sequences, 64)
    record = Record("continuous", given)
    rng = np.random.default_rng(1)
    layers = [
        rng.standard_normal((given.width, given.width)).astype("f4") / given.width**0.5 for _ in range(given.depth)
    ]
    lengths = [int(n) for n in np.minimum(rng.geometric(1 / given.mean, given.sequences), 8 * given.mean)]
    starts = list(rng.standard_normal((given.sequences, given.width)).astype("f4"))
    items = list(zip(starts, lengths, strict=True))

    def forward(x: Any) -> Any:
        for layer in layers:
            x = np.tanh(x @ layer)
        return x

    def loop() -> float:
        waiting, running = list(reversed(items)), []
        begun = time.perf_counter()
        while waiting or running:
            while waiting and len(running) < given.places:
                running.append(waiting.pop())
            rows = forward(np.stack([x for x, _ in running]))
            running = [(row, left - 1) for row, (_, left) in zip(rows, running, strict=True) if left > 1]
        return sum(lengths) / (time.perf_counter() - begun)

    def step(slots: list[cb.Slot[tuple[Any, int], float]]) -> list[Any]:
        rows = forward(np.stack([slot.item[0] if slot.fresh else slot.state for slot in slots]))
        found: list[Any] = []
        for slot, row in zip(slots, rows, strict=True):
            slot.state = row
            found.append(cb.Last(row[0]) if len(slot.parts) + 1 == slot.item[1] else row[0])
        return found

    def whole(batch: list[tuple[Any, int]]) -> list[list[float]]:
        rows, found = np.stack([x for x, _ in batch]), [[] for _ in batch]
        for n in range(max(length for _, length in batch)):
            rows = forward(rows)
            for parts, row, (_, length) in zip(found, rows, batch, strict=True):
                if n < length:
                    parts.append(row[0])
        return found

    async def read(server: Any, item: Any) -> list[float]:
        return [part async for part in server.stream(item, buffer=8 * given.mean)]

    def served(make: Callable[[], Any], streamed: bool = False) -> Callable[[], float]:
        async def run() -> float:
            async with make() as server:
                begun = time.perf_counter()
                works = (read(server, item) if streamed else server.submit(item) for item in items)
                found = await asyncio.gather(*works)
                seconds = time.perf_counter() - begun
            assert [len(parts) for parts in found] == lengths
            return sum(lengths) / seconds

        return lambda: asyncio.run(run())

    def continuous() -> Any:
        return cb.ContinuousBatchingServer[Any, float](step, max_batch=given.places, executor="loop")

    def batches() -> Any:
        return cb.DynamicBatchingServer[Any, Any](whole, max_batch=given.places, executor="loop")

    subjects = {
        "loop": loop,
        "continuous": served(continuous),
        "streamed": served(continuous, streamed=True),
        "whole": served(batches),
    }
    found = interleave(subjects, given.rounds, "parts per second")
    record["parts per second"] = table("parts per second", found, lambda rate: f"{rate:.0f} /s", "loop")

    def bar(of: str, to: str, limit: float) -> Bar:
        ratio = ratios(found, of, to)
        return Bar(f"{of}, to {to}", ratio and ratio["median"], limit, at_least=True)

    record.done(
        tell_bars([bar("continuous", "loop", 0.85), bar("streamed", "loop", 0.7), bar("continuous", "whole", 1.5)])
    )


if __name__ == "__main__":
    main()
