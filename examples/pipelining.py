"""Results are operands before they exist: a chain of a hundred products costs one round trip, not a hundred."""

import asyncio
import sys
import time

import numpy as np

import callboard as cb

LENGTH = 100


async def main(name: str) -> None:
    async with cb.device(name, isolation="process") as gpu:
        rotation = np.linalg.qr(np.random.default_rng(1).standard_normal((32, 32)))[0]
        r = gpu.put(rotation)
        await gpu.blas.gemm(r, r)  # the first product of a kind prepares it

        start = time.perf_counter()
        waited = r
        for _ in range(LENGTH):
            waited = await gpu.blas.gemm(waited, r)  # waits for each
        one_by_one = time.perf_counter() - start

        start = time.perf_counter()
        chained = r
        for _ in range(LENGTH):
            chained = gpu.blas.gemm(chained, r)  # calls them all
        await chained  # waits once
        pipelined = time.perf_counter() - start

        print(f"{LENGTH} products one by one: {one_by_one * 1e3:.2f} ms; as a chain: {pipelined * 1e3:.2f} ms")
        expected = np.linalg.matrix_power(rotation, LENGTH + 1)
        assert np.allclose(await waited.get(), expected)
        assert np.allclose(await chained.get(), expected)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "auto"))
