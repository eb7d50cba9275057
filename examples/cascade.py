"""A cascade reads handwritten digits: a linear model answers what it is sure of, a kernel machine the rest."""

import asyncio
import sys

import numpy as np

import callboard as cb
from callboard.cli.demo.digits import load_digits

DIGITS = load_digits()
PIXELS = (DIGITS.images / 16).astype("f4")
TRAIN, HELD, TEST = np.split(np.random.default_rng(0).permutation(len(PIXELS)), [900, 1350])
TARGET = np.eye(10, dtype="f4")[DIGITS.labels[TRAIN]]


def gram(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    found: np.ndarray = np.exp(-0.3 * ((a**2).sum(1)[:, None] + (b**2).sum(1) - 2 * a @ b.T), dtype="f4")
    return found


async def main(name: str) -> None:
    async with cb.device(name) as gpu:
        x = PIXELS[TRAIN]
        linear = gpu.put(np.linalg.solve(x.T @ x + np.eye(64, dtype="f4"), x.T @ TARGET))
        kernel = gpu.put(np.linalg.solve(gram(x, x) + 0.001 * np.eye(len(x), dtype="f4"), TARGET))

        async def small(rows: list[np.ndarray]) -> np.ndarray:
            return 8 * await gpu.blas.gemm(gpu.put(np.stack(rows)), linear).get()

        async def large(rows: list[np.ndarray]) -> np.ndarray:
            return await gpu.blas.gemm(gpu.put(gram(np.stack(rows), x)), kernel).get()

        stages = [cb.CascadeStage(small, confidence="margin"), cb.CascadeStage(large, confidence="margin", cost=20)]
        async with cb.InferenceCascade[np.ndarray, np.ndarray](stages) as cascade:

            def right(logits: np.ndarray, digit: int) -> bool:
                return int(np.argmax(logits)) == digit

            chosen = await cascade.calibrate(PIXELS[HELD], DIGITS.labels[HELD], max_loss=0.005, right=right)
            print(f"threshold {chosen.thresholds[0]:.2f}: {chosen.escalated[0]:.0%} of the digits go on")
            replies = await asyncio.gather(*(cascade.submit(row) for row in PIXELS[TEST]))
            good = [right(reply.response, digit) for reply, digit in zip(replies, DIGITS.labels[TEST], strict=True)]
            assert np.mean(good) > 0.96
            first = sum(reply.stage_index == 0 for reply in replies)
            assert first > len(replies) / 2
            print(f"{np.mean(good):.1%} of {len(replies)} other digits right, {first} of them by the small model")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "auto"))
