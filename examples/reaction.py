"""Stripes from two chemicals that react and diffuse: a PDE by finite differences, in slices of arrays on the device.

The Gray-Scott model: P. Gray and S. K. Scott, Chemical Engineering Science 38 (1983), in the region called kappa in
J. E. Pearson, "Complex Patterns in a Simple System", Science 261 (1993).
"""

import sys

import numpy as np

import callboard as cb

N, STEPS, FEED, KILL, EVERY = 96, 3000, 0.055, 0.062, 200
SHADES = " .:-=+*#%@"


def grown(gpu: cb.sync.Device) -> np.ndarray:
    xp = gpu.xp
    u, v = xp.ones((N, N), dtype="f32"), xp.zeros((N, N), dtype="f32")
    for x, y in ((30, 40), (60, 60), (48, 20)):
        v[x : x + 10, y : y + 10] = 0.25
        u[x : x + 10, y : y + 10] = 0.5
    grid = gpu.elementwise.map  # one kernel for each line below
    for step in range(STEPS):
        near = [xp.roll(a, shift, axis=axis) for a in (u, v) for axis in (0, 1) for shift in (1, -1)]
        of_u, of_v = (grid("a + b + c + d - 4 * x", *four, x) for four, x in ((near[:4], u), (near[4:], v)))
        rate = u * v * v
        u = grid("u + 0.16 * laplace - rate + feed * (1 - u)", u, of_u, rate, FEED)
        v = grid("v + 0.08 * laplace + rate - loss * v", v, of_v, rate, FEED + KILL)
        if step % EVERY == 0:
            gpu.drain()  # so many steps at once in the queue
    return v.get()


def main(name: str) -> None:
    with cb.sync.device(name) as gpu:
        v = grown(gpu)
    assert np.isfinite(v).all()
    assert 0.05 < (v > 0.15).mean() < 0.9
    shown = (v[::4, ::2] / v.max() * (len(SHADES) - 1)).astype(int)
    print("\n".join("".join(SHADES[i] for i in row) for row in shown))
    print(f"{STEPS} steps of {N} x {N}: the second chemical is on {(v > 0.15).mean():.0%} of the plane")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "auto")
