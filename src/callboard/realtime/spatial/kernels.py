"""The ops of a spatial index: what a CPU computes, and CUDA."""

from typing import Any

from callboard.kernel.nvrtc.decorated import kernel
from callboard.realtime.base.cpu.engines import engine
from callboard.realtime.spatial import cuda

__all__ = ["count", "fill", "keyed", "moved", "nearest", "places"]

PACKAGE = "callboard.realtime.spatial"
EXACT = ("--fmad=false",)


def _cpu() -> Any:
    return engine(f"{PACKAGE}.plain", f"{PACKAGE}.compiled")


@kernel(
    "in p: f64[3, n], in world: f64[13], out key: u32[n], out index: i32[n], n: i32, size: i32",
    cuda=cuda.KEYED,
    grid=lambda n: -(-n // 256),
    block=256,
    options=EXACT,
)
def keyed(p: Any, world: Any, key: Any, index: Any, size: int) -> None:
    """The bucket of each point, and its number."""
    _cpu().keyed(p, world, key, index, int(size))


@kernel(
    "in p: f64[3, n], in order: i32[n], out out: f64[3, n], n: i32",
    cuda=cuda.PLACES,
    grid=lambda n: -(-n // 256),
    block=256,
)
def places(p: Any, order: Any, out: Any) -> None:
    """Points in the order of their buckets."""
    _cpu().places(p, order, out)


@kernel(
    "inout p: f64[3, n], in which: i32[k], in to: f64[3, k], n: i32, k: i32",
    cuda=cuda.MOVED,
    grid=lambda k: -(-k // 256),
    block=256,
)
def moved(p: Any, which: Any, to: Any) -> None:
    """Points at other places."""
    p[:, which] = to


@kernel(
    "in a: f64[3, m], in b: f64[h, m], in points: f64[3, n], in starts: i32[s], in world: f64[13], out counts: i32[m],"
    "m: i32, h: i32, n: i32, s: i32",
    cuda=cuda.COUNT,
    grid=lambda m: -(-m // 128),
    block=128,
    options=EXACT,
)
def count(a: Any, b: Any, points: Any, starts: Any, world: Any, counts: Any) -> None:
    """How many results each search has."""
    _cpu().count(a, b, points, starts, world, counts)


@kernel(
    "in a: f64[3, m], in b: f64[h, m], in points: f64[3, n], in order: i32[n], in starts: i32[s], in world: f64[13],"
    "in offsets: i64[m], inout rows: i32[t], inout distances: f64[t], m: i32, h: i32, n: i32, s: i32",
    cuda=cuda.FILL,
    grid=lambda m: -(-m // 128),
    block=128,
    options=EXACT,
)
def fill(
    a: Any, b: Any, points: Any, order: Any, starts: Any, world: Any, offsets: Any, rows: Any, distances: Any
) -> None:
    """The results of all searches, one after the other."""
    _cpu().fill(a, b, points, order, starts, world, offsets, rows, distances)


@kernel(
    "in a: f64[3, m], in points: f64[3, n], in order: i32[n], in starts: i32[s], in world: f64[13],"
    "inout rows: i32[m, k], inout distances: f64[m, k], m: i32, n: i32, s: i32, k: i32, first: f64",
    cuda=cuda.NEAREST,
    grid=lambda m: -(-m // 128),
    block=128,
    options=EXACT,
)
def nearest(
    a: Any, points: Any, order: Any, starts: Any, world: Any, rows: Any, distances: Any, first: float
) -> None:  # fmt: skip
    """The nearest points of each place."""
    _cpu().nearest(a, points, order, starts, world, float(first), rows, distances)
