"""Logistic regression by Newton's method: gradients, a Hessian and a solve per step, all on the device."""

import asyncio
import sys

import numpy as np

import callboard as cb

STEPS, WIDTH, HEIGHT = 8, 70, 22


async def main(name: str) -> None:
    rng = np.random.default_rng(0)
    host = np.concatenate([rng.normal((-1, -0.7), 0.9, (500, 2)), rng.normal((1, 0.7), 0.9, (500, 2))])
    async with cb.device(name) as gpu:
        xp = gpu.xp
        x = xp.concat([xp.asarray(host), xp.ones((1000, 1))], axis=1)
        y = xp.astype(xp.arange(1000) >= 500, xp.float64)
        weights, losses = xp.zeros(3), []
        for _ in range(STEPS):
            score = x @ weights
            chance = 1 / (1 + xp.exp(-score))
            losses.append(xp.mean(xp.logaddexp(score * 0, score) - y * score))
            slope = x.T @ (chance - y) + 1e-3 * weights
            hessian = (x.T * (chance * (1 - chance))) @ x + 1e-3 * xp.eye(3)
            weights = weights - xp.linalg.solve(hessian, slope)
        right = xp.mean(xp.astype(((x @ weights) > 0) == (y > 0.5), xp.float64))
        fall, share, (a, b, c) = await xp.stack(losses).get(), await right.get(), await weights.get()

    assert share > 0.85
    assert (np.diff(fall) < 1e-9).all()
    canvas = np.full((HEIGHT, WIDTH), " ")
    for points, mark in ((host[:500], "o"), (host[500:], "+"), (line(a, b, c), "█")):
        ends = [WIDTH - 1, HEIGHT - 1]
        across, up = ((points + 4) / 8 * ends).round().astype(int).clip(0, ends).T
        canvas[HEIGHT - 1 - up, across] = mark
    print("\n".join("".join(row) for row in canvas))
    print(f"{share:.1%} are on the right side; loss {' '.join(f'{loss:.4f}' for loss in fall)}")


def line(a: float, b: float, c: float) -> np.ndarray:
    across = np.linspace(-4, 4, 200)
    ends = np.stack([across, -(a * across + c) / b], axis=1)
    return ends[np.abs(ends[:, 1]) < 4]


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "auto"))
