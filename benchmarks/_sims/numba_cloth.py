"""A cloth by hand in Numba: position-based dynamics in as many small steps as there are passes, on one thread."""

from typing import Any

import numpy as np
from numba import njit

from _sims.springs import Cloth, coloured

__all__ = ["stepper"]


@njit(fastmath=True)
def stepped(x: Any, v: Any, q: Any, w: Any, ends: Any, rest: Any, passes: int, dt: Any, steps: int) -> None:
    h = dt / np.float32(passes)
    for _ in range(steps * passes):
        for i in range(len(x)):
            if w[i] > 0:
                v[i, 1] -= np.float32(9.8) * h
                for k in range(3):
                    q[i, k] = x[i, k] + v[i, k] * h
        for s in range(len(ends)):
            a, b = ends[s, 0], ends[s, 1]
            d0, d1, d2 = q[a, 0] - q[b, 0], q[a, 1] - q[b, 1], q[a, 2] - q[b, 2]
            length = np.sqrt(d0 * d0 + d1 * d1 + d2 * d2)
            total = w[a] + w[b]
            if total > 0 and length > 0:
                part = (rest[s] - length) / (total * length)
                for k, d in enumerate((d0, d1, d2)):
                    q[a, k] += w[a] * part * d
                    q[b, k] -= w[b] * part * d
        for i in range(len(x)):
            if w[i] > 0:
                for k in range(3):
                    v[i, k] = (q[i, k] - x[i, k]) / h
                    x[i, k] = q[i, k]


def stepper(x: Any, springs: Any, config: Any, passes: int, dt: float) -> Cloth:
    """A cloth that begins at these positions."""
    held, v, q, w = x.copy(), np.zeros_like(x), x.copy(), np.ones(len(x), "f4")
    w[list(config.pinned)] = 0
    ends, rest, _ = coloured(springs, config.width, config.spacing)

    def stretch() -> float:
        d = held[ends[:, 0]] - held[ends[:, 1]]
        return float((np.linalg.norm(d, axis=1) / rest).max())

    return Cloth(lambda steps: stepped(held, v, q, w, ends, rest, passes, np.float32(dt), steps), stretch)
