"""Logistic regression by Newton's method: gradients, a Hessian and a solve per step, all on the device."""

import sys

import numpy as np

import callboard as cb


def main(name: str) -> None:
    rng = np.random.default_rng(0)
    host = np.concatenate([rng.normal((-1, -0.7), 0.9, (500, 2)), rng.normal((1, 0.7), 0.9, (500, 2))])
    with cb.sync.device(name) as gpu:
        xp = gpu.xp
        x = xp.concat([xp.asarray(host), xp.ones((1000, 1))], axis=1)
        y = xp.astype(xp.arange(1000) >= 500, xp.float64)
        weights, losses = xp.zeros(3), []
        for _ in range(8):
            score = x @ weights
            chance = 1 / (1 + xp.exp(-score))
            losses.append(xp.mean(xp.logaddexp(score * 0, score) - y * score))
            hessian = (x.T * (chance * (1 - chance))) @ x + 1e-3 * xp.eye(3)
            weights = weights - xp.linalg.solve(hessian, x.T @ (chance - y) + 1e-3 * weights)
        right = float(xp.mean(xp.astype(((x @ weights) > 0) == (y > 0.5), xp.float64)))
        fall, (a, b, c) = xp.asarray(losses).get(), weights.get()
    assert right > 0.85
    assert (np.diff(fall) < 1e-9).all()
    canvas, across = np.full((22, 70), " "), np.linspace(-4, 4, 200)
    border = np.stack([across, (-(a * across + c) / b).clip(-4, 4)], axis=1)
    for points, mark in ((host[:500], "o"), (host[500:], "+"), (border, "█")):
        i, j = ((points + 4) / 8 * [69, 21]).round().astype(int).clip(0, [69, 21]).T
        canvas[21 - j, i] = mark
    print("\n".join("".join(row) for row in canvas))
    print(f"{right:.1%} are on the right side; loss {' '.join(f'{loss:.4f}' for loss in fall)}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "auto")
