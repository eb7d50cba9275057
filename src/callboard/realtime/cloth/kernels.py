"""The ops of cloth: what a CPU computes, and CUDA."""

from typing import Any

import numpy as np

from callboard.kernel.nvrtc.decorated import kernel
from callboard.realtime.base.cpu.engines import engine
from callboard.realtime.cloth import cuda

__all__ = ["apart", "begins", "buckets", "finish", "move", "predict", "solve", "stop", "torn"]

PACKAGE = "callboard.realtime.cloth"


def _cpu() -> Any:
    return engine(f"{PACKAGE}.plain", f"{PACKAGE}.compiled")


def _part(dt: Any, substeps: int) -> np.float32:
    return np.float32(dt[0] / np.float32(substeps))


@kernel(
    "in x: f32[3, n], inout v: f32[3, n], out q: f32[3, n], in w: f32[n], in open: f32[n], in fan_starts: i32[p],"
    "in fans: i32[2, f], in dt: f32[1], in world: f32[8], n: i32, f: i32, substeps: i32",
    cuda=cuda.PREDICT,
    grid=lambda n: -(-n // 256),
    block=256,
)
def predict(
    x: Any,
    v: Any,
    q: Any,
    w: Any,
    open: Any,
    fan_starts: Any,
    fans: Any,
    dt: Any,
    world: Any,
    substeps: int,
) -> None:
    """Where particles would be after a substep without springs; see :func:`.plain.predict`."""
    _cpu().predict(x, v, q, w, open, fan_starts, fans, _part(dt, substeps), world)


@kernel(
    "inout q: f32[3, n], inout load: f32[m], in springs: i32[2, m], in rest: f32[m], in kinds: u8[m], in w: f32[n],"
    "in open: f32[n], in compliance: f32[3], in dt: f32[1], n: i32, m: i32, first: i32, count: i32, substeps: i32,"
    "again: i32",
    cuda=cuda.SOLVE,
    grid=lambda count: -(-count // 256),
    block=256,
)
def solve(
    q: Any,
    load: Any,
    springs: Any,
    rest: Any,
    kinds: Any,
    w: Any,
    open: Any,
    compliance: Any,
    dt: Any,
    first: int,
    count: int,
    substeps: int,
    again: int,
) -> None:
    """Bring the springs of a colour closer to their lengths at rest; see :func:`.plain.solve`."""
    part = slice(int(first), int(first) + int(count))
    _cpu().solve(q, load, springs, rest, kinds, w, open, compliance, _part(dt, substeps), part, int(again))


@kernel(
    "inout q: f32[3, n], in x: f32[3, n], in open: f32[n], in colliders: f32[c, 12], n: i32, c: i32, margin: f32",
    cuda=cuda.STOP,
    grid=lambda n: -(-n // 256),
    block=256,
)
def stop(q: Any, x: Any, open: Any, colliders: Any, margin: float) -> None:
    """Put particles out of obstacles; see :func:`.plain.stop`."""
    _cpu().stop(q, x, open, colliders, np.float32(margin))


@kernel(
    "inout x: f32[3, n], inout v: f32[3, n], in q: f32[3, n], in dt: f32[1], n: i32, substeps: i32",
    cuda=cuda.FINISH,
    grid=lambda n: -(-3 * n // 256),
    block=256,
)
def finish(x: Any, v: Any, q: Any, dt: Any, substeps: int) -> None:
    """The substep is done: new velocities and positions."""
    _cpu().finish(x, v, q, _part(dt, substeps))


@kernel(
    "inout rest: f32[m], inout load: f32[m], in x: f32[3, n], in springs: i32[2, m], n: i32, m: i32, most: f32",
    cuda=cuda.TORN,
    grid=lambda m: -(-m // 256),
    block=256,
)
def torn(rest: Any, load: Any, x: Any, springs: Any, most: float) -> None:
    """Break springs that are longer than ``most`` times their length at rest."""
    _cpu().torn(rest, load, x, springs, np.float32(most))


@kernel(
    "in q: f32[3, n], out key: u32[n], n: i32, cell: f32, size: i32",
    cuda=cuda.BUCKETS,
    grid=lambda n: -(-n // 256),
    block=256,
)
def buckets(q: Any, key: Any, cell: float, size: int) -> None:
    """The bucket of the cell in which each particle is."""
    _cpu().buckets(q, key, np.float32(cell), int(size))


@kernel(
    "in keys: u32[n], inout starts: i32[s], n: i32, s: i32",
    cuda=cuda.BEGINS,
    grid=lambda s: -(-s // 256),
    block=256,
)
def begins(keys: Any, starts: Any) -> None:
    """Where each bucket begins in the sorted keys."""
    _cpu().begins(keys, starts)


@kernel(
    "in q: f32[3, n], out out: f32[3, n], in order: i32[n], in starts: i32[s], in home: f32[3, n], in w: f32[n],"
    "in open: f32[n], n: i32, s: i32, thickness: f32",
    cuda=cuda.APART,
    grid=lambda n: -(-n // 256),
    block=256,
)
def apart(q: Any, out: Any, order: Any, starts: Any, home: Any, w: Any, open: Any, thickness: float) -> None:
    """Move particles away from those that are too near; see :func:`.plain.apart`."""
    _cpu().apart(q, out, order, starts, home, w, open, np.float32(thickness))


MOVE = r"""
extern "C" __global__ void move(float *x, const int *which, const float *to, int n, int k) {
    const int t = blockIdx.x * blockDim.x + threadIdx.x;
    if (t < 3 * k) x[(t / k) * n + which[t % k]] = to[t];
}
"""


@kernel(
    "inout x: f32[3, n], in which: i32[k], in to: f32[3, k], n: i32, k: i32",
    cuda=MOVE,
    grid=lambda k: -(-3 * k // 256),
    block=256,
)
def move(x: Any, which: Any, to: Any) -> None:
    """Put particles elsewhere."""
    x[:, which] = to
