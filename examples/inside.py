"""A simulation and a decoder that live beside the device: many small operations, and not one message among them."""

import asyncio
import sys
from collections.abc import Iterator

import numpy as np

import callboard as cb

SIZE, STEPS = 64, 200


class Heat(cb.ResidentActor):
    """Heat on a ring: each step is a matrix times a vector, on the device."""

    def setup(self, ctx: cb.HostContext) -> None:
        self.dev = ctx.device
        ring = np.eye(SIZE, dtype="f4")
        self.step = self.dev.put(0.5 * ring + 0.25 * np.roll(ring, 1, 0) + 0.25 * np.roll(ring, -1, 0))

    def after(self, start: np.ndarray, steps: int) -> np.ndarray:
        heat = self.dev.put(start)
        for _ in range(steps):
            heat = self.dev.blas.gemv(self.step, heat)  # enqueued; nothing waits
        return heat.get()


class Decoder(cb.ResidentActor):
    """A recurrent network that writes letters, one at a time."""

    def setup(self, ctx: cb.HostContext) -> None:
        self.dev = ctx.device
        weights = np.random.default_rng(7).standard_normal((SIZE + 26, SIZE)).astype("f4") / 8
        self.to_state, self.to_letter = self.dev.put(weights[:SIZE]), self.dev.put(weights[SIZE:])

    def write(self, seed: np.ndarray, most: int) -> Iterator[str]:
        state = self.dev.put(seed)
        for _ in range(most):
            state = self.dev.blas.gemv(self.to_state, state)
            best = self.dev.blas.iamax(self.dev.blas.gemv(self.to_letter, state))
            yield chr(ord("a") + best.result())  # sent when it is known


async def main(name: str) -> None:
    async with cb.device(name, isolation="process") as gpu:
        heat = gpu.actor_of(cb.Props(Heat))
        start = np.eye(1, SIZE, dtype="f4")[0]
        end = await heat.call(Heat.after, start, STEPS)
        assert np.isclose(end.sum(), 1, atol=1e-3)  # no heat is lost
        decoder = gpu.actor_of(cb.Props(Decoder))
        text = ""
        async with decoder.stream(Decoder.write, np.ones(SIZE, "f4"), 1_000) as letters:
            while len(text) < 12:
                text += await anext(letters)  # afterwards the generator is closed, and writes no more
        print(f"{STEPS} steps in one call, heat from {end.min():.4f} to {end.max():.4f}; wrote {text}")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "auto"))
