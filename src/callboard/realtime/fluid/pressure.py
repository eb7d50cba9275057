"""The ops of multigrid: what a CPU computes, and CUDA (:mod:`.levels`)."""

from typing import Any

import numpy as np

from callboard.kernel.nvrtc.decorated import kernel
from callboard.realtime.base.cpu.engines import engine
from callboard.realtime.fluid import levels

__all__ = [
    "SMOOTHING",
    "TAIL",
    "ascend",
    "bottom",
    "descend",
    "level_count",
    "odd_axes",
    "prolong",
    "restricted",
    "smooth",
]

PACKAGE = "callboard.realtime.fluid"
SMOOTHING = 2
"""Sweeps before and after each coarser level."""
TAIL = levels.BOTTOM_CELLS
"""Cells of the largest level from which on one launch does all."""
FIELD, PLANE, FACES = "f32[d, h, w]", "f32[1, h, w]", "f32[k, d, h, w]"
EXTENTS = "k: i32, d: i32, h: i32, w: i32"
COARSE = "dd: i32, hh: i32, ww: i32"


def _cpu() -> Any:
    return engine(f"{PACKAGE}.plain", f"{PACKAGE}.compiled")


def level_count(shape: tuple[int, ...]) -> int:
    """Grids, each of half the extents, down to 2 cells along each axis."""
    return 1 + max(0, (max(shape) - 1).bit_length() - 1)


def in_tiles(weights: Any, odd: int) -> bool:
    """Whether a launch can go over a level: in a plane, with two colours, and not too narrow.

    Args:
        weights: The level's, ``[axes, d, h, w]``.
        odd: See :func:`odd_axes`.
    """
    axes, *extents = weights.shape
    return axes == 2 and not odd and all(n == 1 or n >= levels.HALO for n in extents)


def odd_axes(shape: tuple[int, ...], periodic: int) -> int:
    """A bit for each periodic axis with an odd extent, where neighbours across the ends need a third colour.

    Args:
        periodic: A bit for each axis.
    """
    return sum(1 << axis for axis in range(3) if periodic >> axis & 1 and shape[2 - axis] > 1 and shape[2 - axis] % 2)


def _blocks(d: int, h: int, w: int) -> tuple[int, int, int]:
    return -(-w // 32), -(-h // 8), d


def _coarse_blocks(dd: int, hh: int, ww: int) -> tuple[int, int, int]:
    return _blocks(dd, hh, ww)


def _tiles(h: int, w: int) -> tuple[int, int]:
    across, down = levels.TILE
    return -(-w // across), -(-h // down)


# -- one pass ----------------------------------------------------------------------------------------------------------


@kernel(
    f"inout p: {FIELD}, in b: {FIELD}, in weights: {FACES}, {EXTENTS}, odd: i32, colour: i32",
    cuda=levels.SMOOTH,
    grid=_blocks,
)
def smooth(p: Any, b: Any, weights: Any, odd: int, colour: int) -> None:
    """One colour of a sweep of the pressure."""
    _cpu().smooth(p, b, weights, int(odd), int(colour))


@kernel(
    f"in p: {FIELD}, in b: {FIELD}, in weights: {FACES}, inout coarse: f32[dd, hh, ww],"
    f"inout start: f32[dd, hh, ww], {EXTENTS}, {COARSE}",
    cuda=levels.RESTRICT,
    grid=_coarse_blocks,
)
def restricted(p: Any, b: Any, weights: Any, coarse: Any, start: Any) -> None:
    """The residual of coarse cells, and zeros to start with."""
    _cpu().restrict(p, b, weights, coarse, start)


@kernel(
    f"inout p: {FIELD}, in coarse: f32[dd, hh, ww], in weights: f32[k, dd, hh, ww], {EXTENTS}, {COARSE}",
    cuda=levels.PROLONG,
    grid=_blocks,
)
def prolong(p: Any, coarse: Any, weights: Any) -> None:
    """Add the coarse solution."""
    _cpu().prolong(p, coarse, weights)


# -- all passes of a level in a plane, of two colours ------------------------------------------------------------------


@kernel(
    f"in p: {PLANE}, in b: {PLANE}, in weights: f32[2, 1, h, w], inout q: {PLANE}, inout coarse: f32[1, hh, ww],"
    "inout start: f32[1, hh, ww], h: i32, w: i32, hh: i32, ww: i32",
    cuda=levels.DESCEND,
    grid=_tiles,
    block=levels.TILE_THREADS,
)
def descend(p: Any, b: Any, weights: Any, q: Any, coarse: Any, start: Any) -> None:
    """To ``q``: ``p`` after its sweeps; then the residual of coarse cells, and zeros to start with."""
    q[...] = p
    _swept(q, b, weights, 0, SMOOTHING, range(2))
    _cpu().restrict(q, b, weights, coarse, start)


@kernel(
    f"in q: {PLANE}, in b: {PLANE}, in weights: f32[2, 1, h, w], in coarse: f32[1, hh, ww],"
    f"in faces: f32[2, 1, hh, ww], inout p: {PLANE}, h: i32, w: i32, hh: i32, ww: i32",
    cuda=levels.ASCEND,
    grid=_tiles,
    block=levels.TILE_THREADS,
)
def ascend(q: Any, b: Any, weights: Any, coarse: Any, faces: Any, p: Any) -> None:
    """To ``p``: ``q`` and the coarse solution, after sweeps in the opposite order.

    Args:
        faces: Weights of the coarse level.
    """
    p[...] = q
    _cpu().prolong(p, coarse, faces)
    _swept(p, b, weights, 0, SMOOTHING, range(1, -1, -1))


def _swept(p: Any, b: Any, weights: Any, odd: int, times: int, colours: range) -> None:
    for _ in range(times):
        for colour in colours:
            _cpu().smooth(p, b, weights, odd, colour)


# -- all levels from one on --------------------------------------------------------------------------------------------


@kernel(
    f"inout p: {FIELD}, in b: {FIELD}, in weights: f32[n], k: i32, d: i32, h: i32, w: i32, n: i32, periodic: i32",
    cuda=levels.BOTTOM,
    grid=1,
    block=levels.BOTTOM_THREADS,
)
def bottom(p: Any, b: Any, weights: Any, k: int, periodic: int) -> None:
    """A V-cycle from a level of at most :data:`TAIL` cells.

    Args:
        weights: Of this level and all coarser ones, one after the other.
    """
    _solved(p, b, weights, int(k), int(periodic))


def _solved(p: Any, b: Any, weights: Any, k: int, periodic: int) -> None:
    own, deeper = weights[: k * p.size].reshape(k, *p.shape), weights[k * p.size :]
    odd = odd_axes(p.shape, periodic)
    colours = 3 if odd else 2
    if not deeper.size:
        _swept(p, b, own, odd, 2 * max(p.shape), range(colours))
        return
    _swept(p, b, own, odd, SMOOTHING, range(colours))
    coarse, start = np.empty((2, *(-(-n // 2) for n in p.shape)), "f4")
    _cpu().restrict(p, b, own, coarse, start)
    _solved(start, coarse, deeper, k, periodic)
    _cpu().prolong(p, start, deeper[: k * start.size].reshape(k, *start.shape))
    _swept(p, b, own, odd, SMOOTHING, range(colours - 1, -1, -1))
