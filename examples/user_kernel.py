"""A kernel of your own: a step of the heat equation, with a NumPy body for the CPU and CUDA C++ for the GPU.

A hot spot spreads over a plate whose rim is held at 0. The plate is drawn before and after.
"""

import asyncio
import sys
from typing import Any

import numpy as np

import callboard as cb

Array = np.ndarray[Any, Any]

CUDA = """
extern "C" __global__ void heat_step(const float *u, float *next, float alpha, int h, int w) {
    const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= w || y >= h) return;
    const int i = y * w + x;
    const bool rim = x == 0 || y == 0 || x == w - 1 || y == h - 1;
    next[i] = rim ? 0.0f : u[i] + alpha * (u[i - 1] + u[i + 1] + u[i - w] + u[i + w] - 4.0f * u[i]);
}
"""


@cb.kernel(
    "in u: f32[h, w], out next: f32[h, w], alpha: f32, h: i32, w: i32",
    cuda=CUDA,
    block=(32, 8),
    grid=lambda h, w: (-(-w // 32), -(-h // 8)),
)
def heat_step(u: Array, next: Array, alpha: float) -> None:
    """One explicit step; stable up to ``alpha = 0.25``."""
    next[...] = 0
    sides = u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:]
    next[1:-1, 1:-1] = u[1:-1, 1:-1] + alpha * (sides - 4 * u[1:-1, 1:-1])


def draw(u: Array) -> None:
    shades = np.array(list(" .:-=+*#%@"))
    for row in shades[np.clip(np.log2(u + 1e-3) + 9, 0, 9).astype(int)][::4]:
        print("".join(row[::2]))


async def main(which: str = "cpu") -> None:
    plate = np.zeros((64, 128), "f4")
    plate[24:40, 56:72] = 1
    draw(plate)
    async with cb.device(which) as device:
        u, spare = device.put(plate), device.empty(plate.shape)
        for _ in range(500):  # the steps are enqueued one behind the other; nothing waits
            u, spare = heat_step(u, 0.2, next=spare), u
        plate = await u.get()
    draw(plate)
    print(f"warmest {plate.max():.3f}, heat left {plate.sum() / 256:.3f}")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
