"""Subject: callboard, with its context in a process or in a thread."""

import argparse
import asyncio
import itertools
import statistics
import time

import numpy as np
from _worker import missing, serve_async

import callboard as cb

clock = time.perf_counter


class Subject:
    """Measurements on one device; operands are made once per size."""

    def __init__(self, device: cb.Device) -> None:
        self._device = device
        self._operands: dict[tuple[int, int], tuple[cb.GpuRef, cb.GpuRef, list[cb.GpuRef]]] = {}
        self._host: dict[int, np.ndarray] = {}
        self._steps = itertools.count()

    async def _matrices(self, n: int, outs: int) -> tuple[cb.GpuRef, cb.GpuRef, list[cb.GpuRef]]:
        found = self._operands.get((n, outs))
        if found is None:
            rng = np.random.default_rng(1)
            a, b = (self._device.put(rng.random((n, n), np.float32)) for _ in range(2))
            found = self._operands[n, outs] = a, b, [self._device.zeros((n, n)) for _ in range(outs)]
            for out in found[2]:
                await self._device.blas.gemm(a, b, out=out)
        return found

    async def ask(self, n: int, count: int) -> float:
        """Median seconds of one product that is waited for before the next is called."""
        return await self._asks(n, count, 0.0)

    async def ask_unlike(self, n: int, count: int) -> float:
        """The same, with another factor each time, one that has not been in an earlier round either."""
        return await self._asks(n, count, 1e-6)

    async def _asks(self, n: int, count: int, step: float) -> float:
        a, b, (out,) = await self._matrices(n, 1)
        gemm = self._device.blas.gemm
        times = []
        for _ in range(count + 20):
            alpha = 1.0 + next(self._steps) * step
            start = clock()
            await gemm(a, b, out=out, alpha=alpha)
            times.append(clock() - start)
        return statistics.median(times[20:])

    async def pipelined(self, n: int, count: int) -> float:
        """Seconds per product when all are called at once; outputs take turns."""
        a, b, outs = await self._matrices(n, 8)
        gemm = self._device.blas.gemm
        for out in outs:
            last = gemm(a, b, out=out)
        await last
        start = clock()
        for i in range(count):
            last = gemm(a, b, out=outs[i % 8])
        await last
        await self._device.drain()
        return (clock() - start) / count

    async def put_leased(self, nbytes: int) -> float:
        """Seconds of a ``put`` of an array of ``host_empty``."""
        return await self._put(self._leased(nbytes))

    async def put_numpy(self, nbytes: int) -> float:
        """Seconds of a ``put`` of an ordinary array."""
        return await self._put(self._ordinary(nbytes))

    async def get_leased(self, nbytes: int) -> float:
        """Seconds of a ``get`` into an array of ``host_empty``."""
        return await self._get(nbytes, self._leased(nbytes))

    async def get_numpy(self, nbytes: int) -> float:
        """Seconds of a ``get`` into an ordinary array that has been touched before."""
        return await self._get(nbytes, self._ordinary(nbytes))

    async def get_new(self, nbytes: int) -> float:
        """Seconds of a ``get`` that makes its array."""
        return await self._get(nbytes, None)

    async def _put(self, array: np.ndarray) -> float:
        start = clock()
        ref = self._device.put(array)
        await ref
        took = clock() - start
        ref.free()
        await self._device.drain()
        return took

    async def _get(self, nbytes: int, out: np.ndarray | None) -> float:
        ref = await self._device.full(nbytes // 4, 1.5)
        start = clock()
        found = await ref.get(out)
        took = clock() - start
        if found[0] != 1.5 or found[-1] != 1.5:
            raise ValueError(f"1.5 came back as {found[0]}, {found[-1]}")
        ref.free()
        return took

    def _leased(self, nbytes: int) -> np.ndarray:
        found = self._host.get(nbytes)
        if found is None:
            found = self._host[nbytes] = self._device.host_empty(nbytes // 4)
            found[:] = 0.5
        return found

    def _ordinary(self, nbytes: int) -> np.ndarray:
        found = self._host.get(-nbytes)
        if found is None:
            found = self._host[-nbytes] = np.full(nbytes // 4, 0.5, np.float32)
        return found


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", required=True)
    parser.add_argument("--isolation", required=True)
    parser.add_argument("--dispatcher", default="own")
    given = parser.parse_args()
    try:
        async with cb.device(
            given.device,
            isolation=given.isolation,
            dispatcher=given.dispatcher,
            standby=None,
            max_staged_bytes=16 << 30,
        ) as device:
            subject = Subject(device)
            names = ("ask", "ask_unlike", "pipelined", "put_leased", "put_numpy", "get_leased", "get_numpy", "get_new")
            await serve_async({name: getattr(subject, name) for name in names})
    except cb.AccelError as e:
        missing(f"{type(e).__name__}: {e}")


if __name__ == "__main__":
    asyncio.run(main())
