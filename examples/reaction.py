"""Stripes from two chemicals that react and diffuse: a PDE by finite differences, in slices of arrays on the device.

The Gray-Scott model: P. Gray and S. K. Scott, Chemical Engineering Science 38 (1983), in the region called kappa in
J. E. Pearson, "Complex Patterns in a Simple System", Science 261 (1993).
"""

import sys

import numpy as np

import callboard as cb

N, STEPS, FEED, KILL, SHADES = 96, 3000, 0.055, 0.062, " .:-=+*#%@"


def grown(gpu: cb.sync.Device) -> np.ndarray:
    xp = gpu.xp
    u, v = xp.ones((N, N), dtype="f32"), xp.zeros((N, N), dtype="f32")
    for x, y in ((30, 40), (60, 60), (48, 20)):
        v[x : x + 10, y : y + 10] = 0.25
        u[x : x + 10, y : y + 10] = 0.5
    for _ in range(STEPS):
        (a, b, c, d), (e, f, g, h) = ([xp.roll(x, n, axis=axis) for n in (1, -1) for axis in (0, 1)] for x in (u, v))
        rate = u * v * v
        u = u + 0.16 * (a + b + c + d - 4 * u) - rate + FEED * (1 - u)  # one kernel, and so is the next line
        v = v + 0.08 * (e + f + g + h - 4 * v) + rate - (FEED + KILL) * v
    return v.get()


def main(name: str) -> None:
    with cb.sync.device(name) as gpu:
        v = grown(gpu)
    assert 0.05 < (v > 0.15).mean() < 0.9
    print("\n".join("".join(SHADES[int(9 * x / v.max())] for x in row) for row in v[::4, ::2]))
    print(f"{STEPS} steps of {N} x {N}: the second chemical is on {(v > 0.15).mean():.0%} of the plane")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "auto")
