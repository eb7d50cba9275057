"""The Mandelbrot set by ``cb.elementwise``: eight steps of an iteration and its count in one kernel, drawn in colours.

A point c belongs to the set if z = z² + c, from 0 on, stays bounded; beyond |z| = 2 it does not. The area of the set is
known by counting pixels alone: 1.506591 (T. Förstemann, 2012).
"""

import asyncio
import sys

import numpy as np

import callboard as cb

STEPS, AT_ONCE = 400, 8
ONE = "live = real(z) ** 2 + imag(z) ** 2 <= 4; z = where(live, z * z + c, z); n += live"
PALETTE = np.array([16, 17, 18, 19, 20, 26, 32, 38, 44, 50, 48, 82, 118, 154, 190, 226, 220, 214, 208, 202, 196, 160])

begin = cb.elementwise("z = complex(x, y) * 0; c = complex(x, y); n = i32(x) * 0", results=("z", "c", "n"))
iterate = cb.elementwise("; ".join([ONE] * AT_ONCE), results=("z", "n"))  # inputs z, c, n: both written in place
inside = cb.reduction("sum(n == steps) * pixel")


async def main(name: str) -> None:
    wide, high = 780, 480
    x = np.linspace(-2.1, 0.6, wide, dtype="f4")
    y = np.linspace(-1.2, 1.2, high, dtype="f4")
    async with cb.device(name) as gpu:
        z, c, n = begin(gpu.put(x), gpu.put(y[:, None]))  # a row beside a column: a picture
        for _ in range(STEPS // AT_ONCE):  # one after the other on the device, not one waited for
            z, n = iterate(z=z, c=c, n=n)
        area = inside(n=n, steps=STEPS, pixel=float((x[1] - x[0]) * (y[1] - y[0])))
        counts, found = await n.get(), float(await area.get())

    assert abs(found - 1.506591) < 0.03, found
    escaped = np.where(counts < STEPS, counts, 0)
    picture = escaped.reshape(high // 10, 10, wide // 10, 10).max((1, 3))
    colours = PALETTE[np.minimum(np.log2(picture + 1.0) * 3, len(PALETTE) - 1).astype(int)]
    for above, below in zip(colours[::2], colours[1::2], strict=True):
        print("".join(f"\033[38;5;{a};48;5;{b}m▀" for a, b in zip(above, below, strict=True)) + "\033[0m")
    print(f"area {found:.4f} after {STEPS} steps at {wide * high:,} points, 1.5066 in the limit")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "auto"))
