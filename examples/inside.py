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
        """The temperatures after so many steps."""
        heat = self.dev.put(start)
        for _ in range(steps):
            heat = self.dev.blas.gemv(self.step, heat)  # enqueued; nothing waits
        return heat.get()


class Decoder(cb.ResidentActor):
    """A recurrent network that writes letters, one at a time."""

    def setup(self, ctx: cb.HostContext) -> None:
        self.dev = ctx.device
        rng = np.random.default_rng(7)
        self.state_to_state = self.dev.put(rng.standard_normal((SIZE, SIZE)).astype("f4") / 8)
        self.state_to_letter = self.dev.put(rng.standard_normal((26, SIZE)).astype("f4"))

    def write(self, seed: np.ndarray, most: int) -> Iterator[str]:
        """Letters, each sent when it is known."""
        state = self.dev.put(seed)
        for _ in range(most):
            state = self.dev.blas.gemv(self.state_to_state, state)
            scores = self.dev.blas.gemv(self.state_to_letter, state)
            yield chr(ord("a") + self.dev.blas.iamax(scores).result())


async def main(name: str) -> None:
    async with cb.device(name, isolation="process") as gpu:
        heat = gpu.actor_of(cb.Props(Heat))
        start = np.zeros(SIZE, "f4")
        start[0] = 1
        end = await heat.call(Heat.after, start, STEPS)
        assert np.isclose(end.sum(), 1, atol=1e-3)  # no heat is lost
        decoder = gpu.actor_of(cb.Props(Decoder))
        text = ""
        async with decoder.stream(Decoder.write, np.ones(SIZE, "f4"), 1_000) as letters:
            async for letter in letters:
                text += letter
                if len(text) == 12:
                    break  # the generator is closed, and writes no more
        print(
            f"{STEPS} steps in one call; the ends differ by {abs(end[1] - end[-1]):.0e}; it wrote {len(text)} letters"
        )


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "auto"))
