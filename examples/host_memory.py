"""``host_empty``: an array in memory that the device copies by itself, without a copy on the host in between."""

import asyncio
import sys

import numpy as np

import callboard as cb


async def main(name: str) -> None:
    async with cb.device(name, isolation="process") as gpu:
        samples = gpu.host_empty((1000, 256), "f32")  # an ordinary NumPy array in shared, page-locked memory
        samples[:] = np.random.default_rng(1).random(samples.shape, np.float32)
        result = gpu.host_empty((256, 256), "f32")

        a = gpu.put(samples)  # the device reads `samples` itself,
        await a  # so it may be changed only after the reply
        gram = gpu.blas.gemm(a, a, transpose_a=True)
        found = await gram.get(out=result)  # the device writes into `result` itself

        assert found is result
        assert np.allclose(result, samples.T @ samples, rtol=1e-4)
        stats = await gpu.stats()
        print(f"{stats.staged_bytes / 2**20:.2f} MiB of host memory are lent, none was copied on the host")
        assert stats.staged_bytes >= samples.nbytes + result.nbytes


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "auto"))
