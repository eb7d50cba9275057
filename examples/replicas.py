"""Four replicas of a model behind one queue: one is slow, one loses its device, and no request shows it."""

import asyncio
import os
import signal
import sys
import time

import numpy as np

import callboard as cb

WEIGHTS = np.random.default_rng(1).standard_normal((64, 10)).astype("f4")


class Model(cb.ResidentActor):
    """One layer in NumPy; a torch model would be put on ctx.torch_device in setup."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds  # more than the others: a neighbour on the machine, a clock that was throttled

    def setup(self, ctx: cb.HostContext) -> None:
        self.weights = WEIGHTS

    def classify(self, row: np.ndarray) -> int:
        time.sleep(self.seconds)
        return int((row @ self.weights).argmax())


async def main(name: str) -> None:
    rows = np.random.default_rng(2).standard_normal((400, 64)).astype("f4")
    expected = (rows @ WEIGHTS).argmax(axis=1)
    async with cb.device(name, isolation="process") as first, cb.device("cpu", isolation="thread") as second:

        async def make(name: str) -> cb.Replica:
            number = int(name.rpartition("-")[2])
            model = (first if number == 0 else second).actor_of(cb.Props(Model, 0.05 if number == 3 else 0.001))
            await model.ready()
            return cb.Replica(lambda row: model.call(Model.classify, row), close=model.stop_and_wait)

        async with cb.ModelReplicaPool[np.ndarray, int](4, make=make, idempotent=True) as pool:
            requests = [asyncio.create_task(pool.submit(row)) for row in rows]
            await asyncio.gather(*requests[:100])
            pid = first.health().host_pid
            assert pid is not None
            os.kill(pid, signal.SIGKILL)  # the process of replica-0; what it ran, another runs again
            assert np.array_equal(await asyncio.gather(*requests), expected)
            for each in pool.stats().replicas:
                print(f"{each.name}: {each.completed} requests, {each.phase}, ejected {each.ejections} times")
            assert pool.stats().replicas[3].ejections  # 50 times slower than the others

            await pool.restart("replica-3")  # in its place, as any of them could be
            await pool.scale(2)
            assert await pool.submit(rows[0]) == expected[0]


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "auto"))
