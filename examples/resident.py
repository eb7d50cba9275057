"""A model of your own beside the device: it holds state, takes arrays and refs, and outlives a lost context."""

import asyncio
import os
import signal
import sys
from typing import Any

import numpy as np

import callboard as cb

WEIGHTS = np.random.default_rng(1).standard_normal((64, 16)).astype("f4")


class Embedder(cb.ResidentActor):
    """One dense layer in NumPy; torch, CuPy or Warp would do."""

    def __init__(self, weights: np.ndarray) -> None:
        self.weights = weights

    def setup(self, ctx: cb.HostContext) -> None:  # in each generation; a torch model goes to ctx.torch_device here
        self.is_cuda = ctx.is_cuda
        self.calls = 0

    def embed(self, x: np.ndarray) -> np.ndarray:
        self.calls += 1
        return np.asarray(np.tanh(x @ self.weights))

    def spread(self, y: cb.In) -> tuple[float, int]:
        view: Any = y  # of device memory while this runs, not a copy
        self.calls += 1
        if self.is_cuda:
            from torch.utils.dlpack import from_dlpack

            view = from_dlpack(view).cpu().numpy()
        return float(np.std(view)), self.calls


async def main(name: str) -> None:
    async with cb.device(name, isolation="process") as gpu:
        emb = gpu.actor_of(cb.Props(Embedder, WEIGHTS), name="embedder")
        x = np.ones((4, 64), "f4")
        vectors = await emb.call(Embedder.embed, x)  # NumPy arrays of any size, through shared memory
        assert np.allclose(vectors, np.tanh(x @ WEIGHTS), atol=1e-5)
        y = gpu.blas.gemm(gpu.put(x), gpu.put(WEIGHTS))  # pending; the call waits for it in the host
        spread, calls = await emb.call(Embedder.spread, y)
        assert np.isclose(spread, np.std(x @ WEIGHTS), rtol=1e-4)
        assert calls == 2  # its state
        before, pid = gpu.generation, gpu.health().host_pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)  # the process in which the model lived
        await gpu.watch_generation().changed(before)
        assert np.array_equal(await emb.call(Embedder.embed, x), vectors)  # same address, set up again
        assert (await emb.call(Embedder.spread, gpu.put(vectors)))[1] == 2  # its state began anew
        print(f"{vectors.shape} twice, {gpu.health().restarts} context lost in between")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "auto"))
