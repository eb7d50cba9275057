"""The context is lost in the middle of the work, and the work goes on: retries, and weights made again."""

import asyncio
import os
import signal
import sys

import numpy as np

import callboard as cb

WEIGHTS = np.random.default_rng(1).standard_normal((64, 16))


async def main(name: str) -> None:
    async with cb.device(name, isolation="process") as gpu:
        # Made on first use in each generation: what was on a lost device is put there again.
        weights = gpu.per_generation(lambda device: device.put(WEIGHTS))

        @cb.retrying(cb.ContextLost, attempts=2)
        async def answer(x: np.ndarray) -> np.ndarray:
            return await gpu.blas.gemm(gpu.put(x), await weights()).get()

        x = np.ones((4, 64))
        assert np.allclose(await answer(x), x @ WEIGHTS)
        old = await weights()

        calls = [asyncio.create_task(answer(x)) for _ in range(100)]
        await asyncio.sleep(0)
        pid = gpu.health().host_pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)  # the process that holds the context is gone
        answers = await asyncio.gather(*calls)

        assert all(np.allclose(found, x @ WEIGHTS) for found in answers)
        await answer(x)  # in the next generation, if all hundred were faster than the signal
        print(f"{len(answers)} answers, {gpu.health().restarts} context lost")
        try:
            old.get()
        except cb.GpuRefStale as e:
            print(f"a ref of the lost generation: {e.reason}")
        assert old.is_stale
        assert gpu.health().restarts == 1


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "auto"))
