"""Single requests, batched for a model on a device: urgent ones first, a late one refused, a bad one alone."""

import asyncio
import functools
import sys

import numpy as np

import callboard as cb

WEIGHTS = np.random.default_rng(1).standard_normal((64, 10)).astype("f4")


class Classifier(cb.ResidentActor):
    """One layer in NumPy; a torch model would be put on ctx.torch_device in setup."""

    def setup(self, ctx: cb.HostContext) -> None:
        self.weights = WEIGHTS

    def classify(self, rows: list[np.ndarray]) -> np.ndarray:
        x = np.stack(rows)
        if not np.isfinite(x).all():
            raise ValueError("an input is not finite")
        return np.asarray((x @ self.weights).argmax(axis=1))


async def main(name: str) -> None:
    rows = list(np.random.default_rng(2).standard_normal((200, 64)).astype("f4"))
    expected = (np.stack(rows) @ WEIGHTS).argmax(axis=1)
    async with cb.device(name) as gpu:
        model = gpu.actor_of(cb.Props(Classifier), name="classifier")
        await model.ready()
        server = cb.DynamicBatchingServer[np.ndarray, int](
            functools.partial(model.call, Classifier.classify),
            max_batch=32,
            idempotent=True,  # a batch may run again: after a lost context, and to find a bad item
            on_error="bisect",
        )
        async with server:
            found = await asyncio.gather(*(server.submit(row) for row in rows))
            assert np.array_equal(found, expected)
            first = server.stats()
            print(f"{first.completed} requests in {first.batches} batches")

            rows[7] = np.full(64, np.nan, "f4")
            mixed = await asyncio.gather(*(server.submit(row) for row in rows[:32]), return_exceptions=True)
            assert [n for n, each in enumerate(mixed) if isinstance(each, ValueError)] == [7]
            print(f"1 of 32 failed: {mixed[7]!r}")

            waiting = [asyncio.create_task(server.submit(row)) for row in rows[100:]]
            assert await server.submit(rows[0], priority=10) == expected[0]  # overtakes those that wait
            try:
                await server.submit(rows[1], timeout=0.0)
            except cb.DeadlineExceeded as e:
                print(f"too late: {e}")
            assert np.array_equal(await asyncio.gather(*waiting), expected[100:])


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "auto"))
