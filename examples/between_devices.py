"""A pipeline over two devices: layers on one, layers on the other, and the source lost in the middle."""

import asyncio
import os
import signal
import sys

import numpy as np

import callboard as cb

os.environ.setdefault("CALLBOARD_CPU_DEVICES", "2")  # two devices without a GPU
BATCHES, WIDTH = 8, 64


async def main(kind: str) -> None:
    rng = np.random.default_rng(1)
    front, back = (rng.standard_normal((WIDTH, WIDTH)).astype("f4") / 8 for _ in range(2))
    batches = [rng.standard_normal((16, WIDTH)).astype("f4") for _ in range(BATCHES)]
    names = ("cpu:0", "cpu:1") if kind == "cpu" else (kind, "cpu:0")
    async with (
        cb.device(names[0], isolation="process", standby=None) as first,
        cb.device(names[1], isolation="process", standby=None) as second,
    ):
        print(cb.P2pTopology([first, second]).explain())

        weights = first.per_generation(lambda device: device.put(front))
        last = second.put(back)

        async def through(batch: "np.ndarray") -> "np.ndarray":
            hidden = first.blas.gemm(first.put(batch), await weights())
            answer = second.blas.gemm(hidden.to(second), last)  # nothing is awaited in between
            return await answer.get()

        answers = await asyncio.gather(*map(through, batches))
        print("right:", all(np.allclose(a, b @ front @ back, atol=1e-3) for a, b in zip(answers, batches, strict=True)))

        lost = first.put(batches[0])
        await lost
        pid = first.health().host_pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        try:
            await lost.to(second)
            print("copied before the loss was noticed")
        except cb.ContextLost as e:
            print("lost:", str(e).partition("\n")[0][:90])
        await first.ready()
        print("and back:", np.allclose(await through(batches[0]), answers[0]))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "cpu"))
