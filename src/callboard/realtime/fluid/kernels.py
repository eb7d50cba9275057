"""The ops of fluids: what a CPU computes, and CUDA."""

from typing import Any

import numpy as np

from callboard.kernel.nvrtc.decorated import kernel
from callboard.realtime.base.cpu.engines import engine
from callboard.realtime.fluid import cuda

__all__ = [
    "added", "advect", "correct", "curl", "diffuse", "divergence", "project", "prolong", "push", "rescale",
    "restricted", "smooth", "source", "swirl",
]  # fmt: skip

PACKAGE = "callboard.realtime.fluid"
FIELD = "[d, h, w]"
EXTENTS = "d: i32, h: i32, w: i32"
PATH = f"in dt: f32[1], k: i32, c: i32, {EXTENTS}, per: f32, stagger: i32, periodic: i32, solid: i32"


def _cpu() -> Any:
    return engine(f"{PACKAGE}.plain", f"{PACKAGE}.compiled")


def _blocks(d: int, h: int, w: int) -> int:
    return -(-d * h * w // 256)


@kernel(
    f"in u: f32[k, d, h, w], in fluid: f32{FIELD}, in field: f32[c, d, h, w], out out: f32[c, d, h, w], {PATH}",
    cuda=cuda.ADVECT,
    grid=_blocks,
)
def advect(
    u: Any, fluid: Any, field: Any, out: Any, dt: Any, per: float, stagger: int, periodic: int, solid: int
) -> None:
    """Move fields along ``u``; see :func:`.plain.advect`."""
    _cpu().advect(u, fluid, field, out, np.float32(dt[0] * np.float32(per)), int(stagger), int(periodic), int(solid))


@kernel(
    f"in u: f32[k, d, h, w], in fluid: f32{FIELD}, in field: f32[c, d, h, w], in ahead: f32[c, d, h, w],"
    f"in back: f32[c, d, h, w], out out: f32[c, d, h, w], {PATH}",
    cuda=cuda.CORRECT,
    grid=_blocks,
)
def correct(
    u: Any, fluid: Any, field: Any, ahead: Any, back: Any, out: Any, dt: Any, per: float, stagger: int, periodic: int,
    solid: int,
) -> None:  # fmt: skip
    """Take half of the error from ``ahead``; see :func:`.plain.correct`."""
    scale = np.float32(dt[0] * np.float32(per))
    _cpu().correct(u, fluid, field, ahead, back, out, scale, int(stagger), int(periodic), int(solid))


@kernel(
    "inout dye: f32[c, n], in before: f32[c], in after: f32[c], in fluid: f32[n], in dt: f32[1], c: i32, n: i32,"
    "fading: f32",
    cuda=cuda.RESCALE,
    grid=lambda n: -(-n // 256),
)
def rescale(dye: Any, before: Any, after: Any, fluid: Any, dt: Any, fading: float) -> None:
    """Give each dye the total that it had; see :func:`.plain.rescale`."""
    _cpu().rescale(dye, before, after, fluid, np.float32(dt[0]), np.float32(fading))


@kernel(
    f"in u: f32[k, d, h, w], in open: f32[k, d, h, w], out out: f32[3, d, h, w], k: i32, {EXTENTS}",
    cuda=cuda.CURL,
    grid=_blocks,
)
def curl(u: Any, open: Any, out: Any) -> None:
    """Vorticity times the spacing."""
    _cpu().curl(u, open, out)


@kernel(
    f"in vorticity: f32[3, d, h, w], in open: f32[k, d, h, w], out force: f32[k, d, h, w], k: i32, {EXTENTS},"
    "strength: f32",
    cuda=cuda.SWIRL,
    grid=_blocks,
)
def swirl(vorticity: Any, open: Any, force: Any, strength: float) -> None:
    """Confinement of vortices; see :func:`.plain.swirl`."""
    _cpu().swirl(vorticity, open, force, np.float32(strength))


@kernel(
    "inout u: f32[k, d, h, w], in open: f32[k, d, h, w], in dye: f32[c, d, h, w], in force: f32[k, d, h, w],"
    f"in buoyancy: f32[c], in dt: f32[1], k: i32, c: i32, {EXTENTS}",
    cuda=cuda.PUSH,
    grid=_blocks,
)
def push(u: Any, open: Any, dye: Any, force: Any, buoyancy: Any, dt: Any) -> None:
    """Add forces; see :func:`.plain.push`."""
    _cpu().push(u, open, dye, force, buoyancy, np.float32(dt[0]))


@kernel(
    f"inout u: f32[k, d, h, w], in open: f32[k, d, h, w], inout dye: f32[c, d, h, w], in fluid: f32{FIELD},"
    f"in rows: f32[s, 9], in dt: f32[1], k: i32, c: i32, {EXTENTS}, s: i32, spacing: f32",
    cuda=cuda.SOURCE,
    grid=_blocks,
)
def source(u: Any, open: Any, dye: Any, fluid: Any, rows: Any, dt: Any, spacing: float) -> None:
    """Add dye and velocity in balls."""
    _cpu().source(u, open, dye, fluid, rows, np.float32(dt[0]), np.float32(spacing))


@kernel(
    "inout u: f32[k, d, h, w], in before: f32[k, d, h, w], in open: f32[k, d, h, w], in dt: f32[1], k: i32,"
    f"{EXTENTS}, per: f32, odd: i32, colour: i32",
    cuda=cuda.DIFFUSE,
    grid=_blocks,
)
def diffuse(u: Any, before: Any, open: Any, dt: Any, per: float, odd: int, colour: int) -> None:
    """One colour of a sweep of the viscosity."""
    _cpu().diffuse(u, before, open, np.float32(dt[0] * np.float32(per)), int(odd), int(colour))


@kernel(f"in u: f32[k, d, h, w], out out: f32{FIELD}, k: i32, {EXTENTS}", cuda=cuda.DIVERGENCE, grid=_blocks)
def divergence(u: Any, out: Any) -> None:
    """What leaves each cell."""
    _cpu().divergence(u, out)


@kernel(
    f"inout p: f32{FIELD}, in b: f32{FIELD}, in weights: f32[k, d, h, w], k: i32, {EXTENTS}, odd: i32, colour: i32",
    cuda=cuda.SMOOTH,
    grid=_blocks,
)
def smooth(p: Any, b: Any, weights: Any, odd: int, colour: int) -> None:
    """One colour of a sweep of the pressure."""
    _cpu().smooth(p, b, weights, int(odd), int(colour))


@kernel(
    f"in p: f32{FIELD}, in b: f32{FIELD}, in weights: f32[k, d, h, w], inout coarse: f32[dd, hh, ww],"
    f"inout start: f32[dd, hh, ww], k: i32, {EXTENTS}, dd: i32, hh: i32, ww: i32",
    cuda=cuda.RESTRICT,
    grid=lambda dd, hh, ww: -(-dd * hh * ww // 256),
)
def restricted(p: Any, b: Any, weights: Any, coarse: Any, start: Any) -> None:
    """The residual of coarse cells, and zeros to start with."""
    _cpu().restrict(p, b, weights, coarse, start)


@kernel(
    f"inout p: f32{FIELD}, in coarse: f32[dd, hh, ww], in weights: f32[k, dd, hh, ww], k: i32, {EXTENTS}, dd: i32,"
    "hh: i32, ww: i32",
    cuda=cuda.PROLONG,
    grid=_blocks,
)
def prolong(p: Any, coarse: Any, weights: Any) -> None:
    """Add the coarse solution."""
    _cpu().prolong(p, coarse, weights)


@kernel(
    f"inout u: f32[k, d, h, w], in p: f32{FIELD}, in open: f32[k, d, h, w], k: i32, {EXTENTS}",
    cuda=cuda.PROJECT,
    grid=_blocks,
)
def project(u: Any, p: Any, open: Any) -> None:
    """Take the gradient of the pressure."""
    _cpu().project(u, p, open)


ADDED = r"""
extern "C" __global__ void added(float *field, const int *at, const float *amounts, int k) {
    if (blockIdx.x == 0 && threadIdx.x == 0)
        for (int n = 0; n < k; ++n) field[at[n]] += amounts[n];
}
"""


@kernel("inout field: f32[n], in at: i32[k], in amounts: f32[k], k: i32", cuda=ADDED, grid=1, block=32)
def added(field: Any, at: Any, amounts: Any) -> None:
    """Add to some elements, in order."""
    np.add.at(field, at, amounts)
