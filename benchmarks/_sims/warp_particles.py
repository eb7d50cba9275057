"""Particles under gravity on a floor in Warp: what _sims/particles.py measures beside."""

from collections.abc import Callable
from typing import Any

import warp as wp

__all__ = ["stepper"]


@wp.kernel
def moved(x: wp.array(dtype=wp.vec3), v: wp.array(dtype=wp.vec3), dt: float):  # type: ignore[no-untyped-def, valid-type]
    i = wp.tid()
    u = v[i] + wp.vec3(0.0, -9.8, 0.0) * dt
    p = x[i] + u * dt
    if p[1] < 0.0:
        p = wp.vec3(p[0], 0.0, p[2])
        u = wp.vec3(u[0], -0.5 * u[1], u[2])
    x[i] = p
    v[i] = u


def stepper(x: Any, v: Any, device: str) -> Callable[[int], None]:
    """A function that takes some steps and waits for them."""
    wp.config.quiet = True
    wp.init()
    held = [wp.array(one, dtype=wp.vec3, device=device) for one in (x, v)]

    def steps(n: int) -> None:
        for _ in range(n):
            wp.launch(moved, len(x), inputs=[*held, 1e-4], device=device)
        wp.synchronize()

    steps(1)
    return steps
