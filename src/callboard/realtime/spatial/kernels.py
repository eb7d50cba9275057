"""The ops of a spatial index: what a CPU computes, and CUDA.

``turn`` is an order in which a GPU takes the searches, or empty; a CPU finds its own. Results do not depend on it.
"""

from typing import Any

from callboard.kernel.nvrtc.decorated import kernel
from callboard.realtime.base.cpu.engines import engine
from callboard.realtime.spatial import cuda

__all__ = ["count", "fill", "keyed", "moved", "near", "nearest", "places"]

PACKAGE = "callboard.realtime.spatial"
EXACT = ("--fmad=false",)


def _cpu() -> Any:
    return engine(f"{PACKAGE}.plain", f"{PACKAGE}.compiled")


@kernel(
    "in p: f64[n, 3], in world: f64[13], out key: u32[n], out index: i32[n], n: i32, size: i32",
    cuda=cuda.KEYED,
    grid=lambda n: -(-n // 256),
    block=256,
    options=EXACT,
)
def keyed(p: Any, world: Any, key: Any, index: Any, size: int) -> None:
    """The bucket of each point, and its number."""
    _cpu().keyed(p, world, key, index, int(size))


@kernel(
    "in p: f64[n, 3], in order: i32[n], out out: f64[3, n], n: i32",
    cuda=cuda.PLACES,
    grid=lambda n: -(-n // 256),
    block=256,
)
def places(p: Any, order: Any, out: Any) -> None:
    """Points in the order of their buckets."""
    _cpu().places(p, order, out)


@kernel(
    "inout p: f64[n, 3], in which: i32[k], in to: f64[k, 3], k: i32",
    cuda=cuda.MOVED,
    grid=lambda k: -(-k // 256),
    block=256,
)
def moved(p: Any, which: Any, to: Any) -> None:
    """Points at other places."""
    p[which] = to


@kernel(
    "in a: f64[m, 3], in b: f64[w, h], in turn: i32[t], in points: f64[3, n], in starts: i32[s], in world: f64[13],"
    "out counts: i64[m], m: i32, w: i32, h: i32, t: i32, n: i32, s: i32",
    cuda=cuda.COUNT,
    grid=lambda m: -(-m // 128),
    block=128,
    options=EXACT,
)
def count(a: Any, b: Any, turn: Any, points: Any, starts: Any, world: Any, counts: Any) -> None:
    """How many results each search has; ``b`` has a row for each search or one for all, as with the others."""
    _cpu().count(a, b, points, starts, world, counts)


@kernel(
    "in a: f64[m, 3], in b: f64[w, 1], in turn: i32[t], in points: f64[3, n], in starts: i32[s], in world: f64[13],"
    "out counts: i64[m], m: i32, w: i32, t: i32, n: i32",
    cuda=cuda.NEAR,
    grid=lambda m: -(-m // 128),
    block=128,
    options=EXACT,
)
def near(a: Any, b: Any, turn: Any, points: Any, starts: Any, world: Any, counts: Any) -> None:
    """As ``count``, of points within radii in cells that are neither hashed nor periodic: faster on a GPU."""
    _cpu().count(a, b, points, starts, world, counts)


@kernel(
    "in a: f64[m, 3], in b: f64[w, h], in turn: i32[t], in points: f64[3, n], in order: i32[n], in starts: i32[s],"
    "in world: f64[13], in offsets: i64[m], inout rows: i32[v], inout distances: f64[v], m: i32, w: i32, h: i32,"
    "t: i32, n: i32, s: i32",
    cuda=cuda.FILL,
    grid=lambda m: -(-m // 128),
    block=128,
    options=EXACT,
)
def fill(
    a: Any, b: Any, turn: Any, points: Any, order: Any, starts: Any, world: Any, offsets: Any, rows: Any, distances: Any
) -> None:
    """The results of all searches, one after the other."""
    _cpu().fill(a, b, points, order, starts, world, offsets, rows, distances)


@kernel(
    "in a: f64[m, 3], in turn: i32[t], in points: f64[3, n], in order: i32[n], in starts: i32[s], in world: f64[13],"
    "inout rows: i32[m, k], inout distances: f64[m, k], m: i32, t: i32, n: i32, s: i32, k: i32, first: f64",
    cuda=cuda.NEAREST,
    grid=lambda m: -(-m // 128),
    block=128,
    options=EXACT,
)
def nearest(
    a: Any, turn: Any, points: Any, order: Any, starts: Any, world: Any, rows: Any, distances: Any, first: float
) -> None:  # fmt: skip
    """The nearest points of each place."""
    _cpu().nearest(a, points, order, starts, world, float(first), rows, distances)
