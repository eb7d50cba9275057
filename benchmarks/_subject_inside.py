"""Subject: the libraries of the device called by a resident actor (``ctx.device``), where it runs."""

import argparse
import asyncio
import itertools
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from _worker import missing, serve_async

import callboard as cb

clock = time.perf_counter
PATIENCE = 600.0
"""Seconds that a measurement may take."""


class Inside(cb.ResidentActor):
    """Measures its own calls; operands are made once per size."""

    def setup(self, ctx: cb.HostContext) -> None:
        self.dev = ctx.device
        self.operands: dict[int, list[cb.GpuRef[Any]]] = {}
        self.steps = itertools.count()

    def _matrices(self, n: int) -> list[cb.GpuRef[Any]]:
        found = self.operands.get(n)
        if found is None:
            rng = np.random.default_rng(1)
            found = self.operands[n] = [self.dev.put(rng.random((n, n), np.float32)) for _ in range(10)]
            self.dev.synchronize()
        return found

    def ask(self, n: int, count: int) -> float:
        """Median seconds of one product that is waited for before the next is called."""
        return self._asks(n, count, 0.0)

    def ask_unlike(self, n: int, count: int) -> float:
        """The same, with another factor each time."""
        return self._asks(n, count, 1e-6)

    def _asks(self, n: int, count: int, step: float) -> float:
        a, b, out, *_ = self._matrices(n)
        gemm, synchronize = self.dev.blas.gemm, self.dev.synchronize
        times = []
        for _ in range(count + 20):
            alpha = 1.0 + next(self.steps) * step
            start = clock()
            gemm(a, b, out=out, alpha=alpha)
            synchronize()
            times.append(clock() - start)
        return statistics.median(times[20:])

    def pipelined(self, n: int, count: int) -> float:
        """Seconds per product; one wait at the end; outputs take turns."""
        a, b, *outs = self._matrices(n)
        gemm = self.dev.blas.gemm
        for out in outs:
            gemm(a, b, out=out)
        self.dev.synchronize()
        start = clock()
        for i in range(count):
            gemm(a, b, out=outs[i % 8])
        self.dev.synchronize()
        return (clock() - start) / count


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", required=True)
    given = parser.parse_args()
    try:
        async with cb.device(given.device, isolation="process", standby=None) as device:
            actor = device.actor_of(cb.Props(Inside))

            def measured(method: Callable[[Inside, int, int], float]) -> Callable[..., Any]:
                return lambda n, count: actor.with_timeout(PATIENCE).call(method, n, count)

            await serve_async(
                {
                    "ask": measured(Inside.ask),
                    "ask_unlike": measured(Inside.ask_unlike),
                    "pipelined": measured(Inside.pipelined),
                }
            )
    except cb.AccelError as e:
        missing(f"{type(e).__name__}: {e}")


if __name__ == "__main__":
    asyncio.run(main())
