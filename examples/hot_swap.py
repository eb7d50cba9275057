"""A model is replaced while requests run: loaded and checked beside the old one, flipped, rolled back."""

import asyncio
import functools
import sys

import numpy as np

import callboard as cb

ROW = np.ones(64, "f4")


class Linear(cb.ResidentActor):
    """One layer."""

    def __init__(self, scale: float) -> None:
        self.scale = scale

    def setup(self, ctx: cb.HostContext) -> None:
        self.weights = np.full((64, 10), self.scale, "f4")

    def predict(self, row: np.ndarray) -> np.ndarray:
        return np.asarray(row @ self.weights)


async def main(name: str) -> None:
    async with cb.device(name) as gpu:

        def version(name: str, scale: float) -> cb.ModelVersion:
            actors: list[cb.ResidentRef[Linear]] = []

            async def load() -> object:
                actors.append(gpu.actor_of(cb.Props(Linear, scale)))
                await actors[-1].ready()
                return functools.partial(actors[-1].call, Linear.predict)

            async def unload(model: object) -> None:
                await actors.pop().stop_and_wait()

            golden = [(ROW, np.zeros(10, "f4"))]  # values may differ; shape, dtype and finiteness may not
            return cb.ModelVersion(name, load, unload=unload, warmup=[ROW] * 3, golden=golden)

        async with cb.ModelHotSwapServer[np.ndarray, np.ndarray](version("1", 1.0), max_concurrent=4) as server:
            requests = [asyncio.create_task(server.submit(ROW)) for _ in range(200)]
            report = await server.swap(version("2", 2.0))
            assert not report.unload_errors
            print(f"version {report.version} after {report.previous}, unloaded: {report.unloaded}")
            for reply in await asyncio.gather(*requests):
                assert np.all(reply.response == 64 * int(reply.version))

            try:
                await server.swap(version("3", float("nan")))
            except cb.SwapFailed as e:
                print(f"refused in {e.phase}: {e.__cause__}")
            print("back to version", (await server.rollback()).version)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "auto"))
