"""A cloth by hand in Warp: position-based dynamics in small steps, a launch for each colour, a graph on a GPU."""

import itertools
from typing import Any

import numpy as np
import warp as wp

from _sims.springs import Cloth, coloured

__all__ = ["stepper"]

Vectors, Floats = wp.array(dtype=wp.vec3), wp.array(dtype=float)


@wp.kernel
def predicted(x: Vectors, v: Vectors, q: Vectors, w: Floats, h: float):  # type: ignore[no-untyped-def, valid-type]
    i = wp.tid()
    if w[i] > 0.0:
        v[i] = v[i] + wp.vec3(0.0, -9.8, 0.0) * h
        q[i] = x[i] + v[i] * h


@wp.kernel
def solved(q: Vectors, w: Floats, ends: wp.array(dtype=wp.vec2i), rest: Floats, first: int):  # type: ignore[no-untyped-def, valid-type]
    s = first + wp.tid()
    a = ends[s][0]
    b = ends[s][1]
    d = q[a] - q[b]
    length = wp.length(d)
    total = w[a] + w[b]
    if total > 0.0 and length > 0.0:
        part = (rest[s] - length) / (total * length)
        q[a] = q[a] + d * (w[a] * part)
        q[b] = q[b] - d * (w[b] * part)


@wp.kernel
def finished(x: Vectors, v: Vectors, q: Vectors, w: Floats, h: float):  # type: ignore[no-untyped-def, valid-type]
    i = wp.tid()
    if w[i] > 0.0:
        v[i] = (q[i] - x[i]) / h
        x[i] = q[i]


def stepper(x: Any, springs: Any, config: Any, passes: int, dt: float, device: str) -> Cloth:
    """A cloth that begins at these positions."""
    wp.config.quiet = True
    wp.init()
    colours = coloured(springs, config.width, config.spacing)
    weights = np.ones(len(x), "f4")
    weights[list(config.pinned)] = 0
    held, v, q = (wp.array(one, dtype=wp.vec3, device=device) for one in (x, np.zeros_like(x), x))
    w, rest = (wp.array(one, dtype=float, device=device) for one in (weights, colours.rest))
    ends = wp.array(colours.ends, dtype=wp.vec2i, device=device)
    h, starts = dt / passes, colours.starts.tolist()

    def step() -> None:
        for _ in range(passes):
            wp.launch(predicted, len(x), inputs=[held, v, q, w, h], device=device)
            for first, end in itertools.pairwise(starts):
                wp.launch(solved, end - first, inputs=[q, w, ends, rest, first], device=device)
            wp.launch(finished, len(x), inputs=[held, v, q, w, h], device=device)

    step()
    if device != "cpu":
        with wp.ScopedCapture(device=device) as capture:
            step()

    def steps(n: int) -> None:
        for _ in range(n):
            if device == "cpu":
                step()
            else:
                wp.capture_launch(capture.graph)
        wp.synchronize()

    def stretch() -> float:
        d = held.numpy()[colours.ends]
        return float((np.linalg.norm(d[:, 0] - d[:, 1], axis=1) / colours.rest).max())

    return Cloth(steps, stretch)
