"""A mixture of experts: tokens routed to four experts, of which one fails; a load that the bias evens out."""

import asyncio
import functools
import sys

import numpy as np

import callboard as cb

RNG = np.random.default_rng(1)
GATE = RNG.standard_normal((64, 4)).astype("f4") / 8 + np.array([0.1, 0, 0, 0], "f4")
UP, DOWN = RNG.standard_normal((4, 64, 128)).astype("f4"), RNG.standard_normal((4, 128, 64)).astype("f4") / 128


class Expert(cb.ResidentActor):
    """Two layers in NumPy; torch modules would be put on ctx.torch_device in setup."""

    def __init__(self, number: int) -> None:
        self.number = number

    def forward(self, rows: np.ndarray) -> np.ndarray:
        return np.asarray(np.maximum(rows @ UP[self.number], 0) @ DOWN[self.number])


def gate(tokens: np.ndarray) -> np.ndarray:
    return np.asarray(tokens @ GATE)


async def main(name: str) -> None:
    tokens = RNG.standard_normal((256, 64)).astype("f4")
    async with cb.device(name) as gpu:
        actors = [await gpu.actor_of(cb.Props(Expert, n), name=f"expert-{n}", wait=True) for n in range(4)]
        experts = [functools.partial(actor.call, Expert.forward) for actor in actors]
        async with cb.MoeRouter(gate, experts, top_k=2, on_expert_error="renormalise") as router:
            found = await router.submit(tokens)
            weights = np.exp(gate(tokens[0])) * np.isin(np.arange(4), found.choice.experts[0])
            outputs = np.stack([np.maximum(tokens[0] @ UP[n], 0) @ DOWN[n] for n in range(4)])
            assert np.allclose(found.output[0], weights @ outputs / weights.sum(), atol=1e-4)
            print(f"{found.load.tolist()} rows per expert, load-balancing loss {found.load_balancing_loss:.3f}")

            actors[3].stop()
            found = await router.submit(tokens)
            print(f"without expert {found.failed[0]} the others do its work: {np.isfinite(found.output).all()}")

    rule = cb.TopK(2, score="sigmoid")  # as in DeepSeek-V3
    async with cb.MoeRouter(gate, [np.negative] * 4, top_k=rule) as router:
        loads = []
        for _ in range(100):
            batch = RNG.standard_normal((256, 64)).astype("f4") + 0.2
            loads.append((await router.submit(batch)).load)
            router.update_bias(0.01)
        print(f"load {loads[0].tolist()} at first, {loads[-1].tolist()} in the end")
        assert np.ptp(loads[-1]) < np.ptp(loads[0])


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "auto"))
