"""Subject: copies between two devices, or between two hosts of one device, through callboard.

python _subject_peers.py SOURCE TARGET ISOLATION
"""

import asyncio
import sys
import time

import numpy as np
from _worker import serve_async

import callboard as cb

clock = time.perf_counter


async def main(source: str, target: str, isolation: str) -> None:
    # Two systems: within one, a GPU that is named twice is one device.
    async with (
        cb.device(source, isolation=isolation, standby=None) as a,  # type: ignore[arg-type]
        cb.device(target, isolation=isolation, standby=None) as b,  # type: ignore[arg-type]
    ):
        arrays: dict[int, tuple[cb.GpuRef, cb.GpuRef]] = {}

        def of(nbytes: int) -> tuple[cb.GpuRef, cb.GpuRef]:
            if nbytes not in arrays:
                arrays[nbytes] = a.put(np.full(nbytes // 4, 0.5, np.float32)), b.zeros(nbytes // 4)
            return arrays[nbytes]

        async def pipelined(nbytes: int, count: int) -> float:
            """Seconds per copy into an array that is there; the last one is awaited."""
            x, out = of(nbytes)
            await b.put(x, out=out)
            start = clock()
            for _ in range(count - 1):
                b.put(x, out=out)
            await b.put(x, out=out)
            return (clock() - start) / count

        async def ask(nbytes: int, count: int) -> float:
            """Median seconds of a copy that is awaited."""
            x, out = of(nbytes)
            times = []
            for _ in range(count):
                start = clock()
                await b.put(x, out=out)
                times.append(clock() - start)
            return float(np.median(times))

        await serve_async({"pipelined": pipelined, "ask": ask})


asyncio.run(main(*sys.argv[1:4]))
