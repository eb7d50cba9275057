"""One request kills the context each time it runs: it is found, refused, and its neighbours are answered."""

import asyncio
import os
import signal
import sys

import numpy as np

import callboard as cb


class Model(cb.ResidentActor):
    """Sums rows; an empty array makes it crash, as a kernel without a bounds check would."""

    def total(self, row: np.ndarray) -> float:
        if row.size == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return float(row.sum())


async def main(name: str) -> None:
    async with cb.device(name, isolation="process") as device:
        model = device.actor_of(cb.Props(Model), name="model")
        quarantine = cb.Quarantine(model, hold=60.0)
        attempts = 0

        async def ask(row: np.ndarray) -> float:
            async def call(model: cb.ResidentRef[Model]) -> float:
                nonlocal attempts
                attempts += 1
                return await model.call(Model.total, row)

            return await quarantine.run(f"{row.tobytes()!r}", call)  # the same input is the same request

        rows = [np.full(n, 2.0) for n in (1, 2, 0, 3, 4)]
        ends = await asyncio.gather(*map(ask, rows), return_exceptions=True)
        for row, end in zip(rows, ends, strict=True):
            print(f"{row.size} numbers: {end}")
        assert [end for end in ends if isinstance(end, float)] == [2, 4, 6, 8]
        assert isinstance(ends[2], cb.Quarantined)
        assert device.health().restarts == 3
        assert attempts <= 3 + 2 * 4  # each neighbour is run twice at most

        before = attempts
        try:
            await ask(np.empty(0))
        except cb.Quarantined as e:
            print(f"refused for {e.retry_after:.0f} s, without a call")
        assert attempts == before
        assert await ask(np.ones(5)) == 5
        print(quarantine.stats())


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "auto"))
