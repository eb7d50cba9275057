"""The first steps in asyncio: arrays to a device, two products, one round trip."""

import asyncio
import sys

import numpy as np

import callboard as cb


async def main(name: str) -> None:
    async with cb.System("hello") as system:
        gpu = await system.device(name)
        x = np.random.default_rng(1).random((512, 512), np.float32)
        a = gpu.put(x)  # a GpuRef at once; the array has been read
        b = gpu.blas.gemm(a, a)  # likewise: shape and dtype are known, the value is pending
        c = gpu.blas.gemm(b, a, alpha=0.5)  # may be named before it is there
        print(b.shape, b.dtype, "on", gpu.name)
        found = await c.get()  # one round trip for all of it
        assert np.allclose(found, 0.5 * (x @ x @ x), rtol=1e-4)
        print(found[:2, :4])


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "auto"))
