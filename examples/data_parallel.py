"""Data-parallel gradient descent: each device has its part of the rows, and all add up their gradients.

One device is killed on the way. Its rows are put there again, the world forms again, and the model is as good as that
of NumPy on one machine.
"""

import asyncio
import os
import signal
import sys

import numpy as np

import callboard as cb

os.environ.setdefault("CALLBOARD_CPU_DEVICES", "3")  # several devices without a GPU
STEPS, RATE = 60, 0.5


async def main(kind: str) -> None:
    draw = np.random.default_rng(0)
    rows = draw.standard_normal((600, 8))
    labels = rows @ np.arange(8.0) + 0.01 * draw.standard_normal(600)
    names = [f"cpu:{index}" for index in range(3)] if kind == "cpu" else [kind]
    async with cb.System() as system:
        devices = [await system.device(name, isolation="process") for name in names]
        shares = list(zip(np.split(rows, len(devices)), np.split(labels[:, None], len(devices)), strict=True))
        data = [
            device.per_generation(lambda d, s=share: (d.put(s[0]), d.put(s[1])))  # type: ignore[misc]
            for device, share in zip(devices, shares, strict=True)
        ]

        async with cb.world(devices) as world:

            @cb.retrying(cb.ContextLost, attempts=3)
            async def step(weights: np.ndarray) -> np.ndarray:
                await world.ready()
                gradients = []
                for device, share in zip(devices, data, strict=True):
                    x, y = await share()
                    error = device.blas.gemm(x, device.put(weights), beta=-1.0, c=y)
                    gradients.append(device.blas.gemm(x, error, transpose_a=True, alpha=1.0 / len(x)))
                mean = await world.all_reduce(gradients, "avg")
                return weights - RATE * await mean[0].get()

            weights = np.zeros((8, 1))
            for number in range(STEPS):
                if number == STEPS // 2:
                    victim = devices[-1].health().host_pid
                    assert victim is not None  # the world is ready, so each device has a host
                    os.kill(victim, signal.SIGKILL)
                weights = await step(weights)
            print(f"{world.size} ranks, formed {world.formation} times, {world.stats().completed} collectives")

    best = np.linalg.lstsq(rows, labels, rcond=None)[0]
    print("weights:", weights.ravel().round(2), "largest difference to NumPy's:", abs(weights.ravel() - best).max())


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "cpu"))
