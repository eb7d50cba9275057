"""k-means by the array API: the whole iteration stays on the device, and none of its steps is waited for."""

import asyncio
import sys
from typing import Any

import numpy as np

import callboard as cb

K, STEPS, WIDTH, HEIGHT = 5, 20, 70, 22


def clouds() -> tuple[Any, Any]:
    rng = np.random.default_rng(11)
    middles = rng.uniform(-8, 8, (K, 2))
    return middles, (middles[:, None] + rng.normal(0, 0.7, (K, 400, 2))).reshape(-1, 2).astype("f4")


async def main(name: str) -> None:
    middles, host = clouds()
    async with cb.device(name) as gpu:
        xp, points = gpu.xp, gpu.array(host)
        centres, nearest = points[::400], xp.arange(K)  # one of each cloud
        for _ in range(STEPS):
            nearest = xp.argmin(xp.sum((points[:, None] - centres) ** 2, axis=-1), axis=1)
            member = xp.astype(nearest[:, None] == xp.arange(K), xp.float32)
            centres = member.T @ points / xp.sum(member, axis=0)[:, None]
        found, labels = await centres.get(), await nearest.get()  # the first wait
    assert np.abs(found[:, None] - middles).max(-1).min(1).max() < 0.2
    canvas = np.full((HEIGHT, WIDTH), " ")
    x, y = ((host + 10) / 20 * [WIDTH - 1, HEIGHT - 1]).round().astype(int).clip(0, [WIDTH - 1, HEIGHT - 1]).T
    canvas[HEIGHT - 1 - y, x] = np.array(list("ox+*."))[labels]
    legend = [f"{'ox+*.'[k]} {np.sum(labels == k)} points around {found[k].round(2)}" for k in range(K)]
    print("\n".join(["".join(row) for row in canvas] + legend))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "auto"))
