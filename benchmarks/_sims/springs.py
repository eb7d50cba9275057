"""Springs in colours: none of a colour shares a particle with another. What cloths by hand are made of."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

__all__ = ["Cloth", "Springs", "coloured"]


class Springs(NamedTuple):
    """Attributes: ends i4 ``[m, 2]``, sorted by colour; lengths f4 ``[m]``; where each colour begins, and the end."""

    ends: Any
    rest: Any
    starts: Any


class Cloth(NamedTuple):
    """Attributes: takes some steps and waits for them; the length of the longest spring, by that at rest."""

    steps: Callable[[int], Any]
    stretch: Callable[[], float]


def coloured(springs: Any, width: int, spacing: float) -> Springs:
    """The springs of a grid along its edges and diagonals, no longer than the second neighbour."""
    y, x = np.divmod(springs, width)
    rest = np.hypot(x[:, 0] - x[:, 1], y[:, 0] - y[:, 1]).astype("f4") * np.float32(spacing)
    taken: list[int] = [0] * (int(springs.max()) + 1)
    colours = np.zeros(len(springs), "i4")
    for n, (a, b) in enumerate(springs.tolist()):
        used = taken[a] | taken[b]
        free = ~used & (used + 1)  # the lowest bit that is not set
        taken[a] |= free
        taken[b] |= free
        colours[n] = free.bit_length() - 1
    order = np.argsort(colours, kind="stable")
    starts = np.searchsorted(colours[order], np.arange(colours.max() + 2)).astype("i4")
    return Springs(np.ascontiguousarray(springs[order], "i4"), np.ascontiguousarray(rest[order]), starts)
