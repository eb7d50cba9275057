"""The ops of fluids: what a CPU computes, and CUDA."""

from typing import Any

import numpy as np

from callboard.kernel.nvrtc.decorated import kernel
from callboard.realtime.base.cpu.engines import engine
from callboard.realtime.fluid import cuda

__all__ = ["added", "advect", "correct", "curl", "diffuse", "divergence", "project", "push", "settle", "swirl"]

PACKAGE = "callboard.realtime.fluid"
FIELD, FLOW, DYE = "f32[d, h, w]", "f32[k, d, h, w]", "f32[c, d, h, w]"
EXTENTS = "d: i32, h: i32, w: i32"
PATH = f"in dt: f32[1], k: i32, c: i32, {EXTENTS}, per: f32, periodic: i32, solid: i32"


def _cpu() -> Any:
    return engine(f"{PACKAGE}.plain", f"{PACKAGE}.compiled")


def _blocks(d: int, h: int, w: int) -> tuple[int, int, int]:
    """Of 32 by 8 cells."""
    return -(-w // 32), -(-h // 8), d


def _groups(k: int, d: int, h: int, w: int) -> tuple[int, int, int]:
    """Blocks for each component of the velocity, and for the dyes."""
    return -(-w // 32), -(-h // 8), d * (k + 1)


@kernel(
    f"in u: {FLOW}, in fluid: {FIELD}, in flow: {FLOW}, in dye: {DYE}, out flowed: {FLOW}, out dyed: {DYE}, {PATH}",
    cuda=cuda.ADVECT,
    grid=_groups,
)
def advect(
    u: Any, fluid: Any, flow: Any, dye: Any, flowed: Any, dyed: Any, dt: Any, per: float, periodic: int, solid: int
) -> None:
    """Move fields at faces and in cells along ``u``; see :func:`.plain.advect`."""
    scale = np.float32(dt[0] * np.float32(per))
    _cpu().advect(u, fluid, flow, flowed, scale, 1, int(periodic), int(solid))
    _cpu().advect(u, fluid, dye, dyed, scale, 0, int(periodic), int(solid))


@kernel(
    f"in u: {FLOW}, in fluid: {FIELD}, in dye: {DYE}, in flow_ahead: {FLOW}, in dye_ahead: {DYE}, in flow_back: {FLOW},"
    f"in dye_back: {DYE}, out flowed: {FLOW}, out dyed: {DYE}, {PATH}",
    cuda=cuda.CORRECT,
    grid=_groups,
)
def correct(
    u: Any, fluid: Any, dye: Any, flow_ahead: Any, dye_ahead: Any, flow_back: Any, dye_back: Any, flowed: Any,
    dyed: Any, dt: Any, per: float, periodic: int, solid: int,
) -> None:  # fmt: skip
    """Take half of the error from what is ahead; see :func:`.plain.correct`."""
    path = np.float32(dt[0] * np.float32(per)), int(periodic), int(solid)
    _cpu().correct(u, fluid, u, flow_ahead, flow_back, flowed, path[0], 1, *path[1:])
    _cpu().correct(u, fluid, dye, dye_ahead, dye_back, dyed, path[0], 0, *path[1:])


@kernel(
    f"in flowed: {FLOW}, in dyed: {DYE}, in before: f32[c], in after: f32[c], in open: {FLOW}, in fluid: {FIELD},"
    f"in rows: f32[s, 9], inout u: {FLOW}, inout dye: {DYE}, in dt: f32[1], k: i32, c: i32, {EXTENTS}, s: i32,"
    "spacing: f32, fading: f32",
    cuda=cuda.SETTLE,
    grid=_blocks,
)
def settle(
    flowed: Any, dyed: Any, before: Any, after: Any, open: Any, fluid: Any, rows: Any, u: Any, dye: Any, dt: Any,
    spacing: float, fading: float,
) -> None:  # fmt: skip
    """Stop what a wall stops, give each dye the total that it had, and add what comes in."""
    np.multiply(flowed, open, out=u)
    dye[...] = dyed
    _cpu().rescale(dye.reshape(len(dye), -1), before, after, fluid.reshape(-1), np.float32(dt[0]), np.float32(fading))
    _cpu().source(u, open, dye, fluid, rows, np.float32(dt[0]), np.float32(spacing))


@kernel(
    f"in u: {FLOW}, in open: {FLOW}, out out: f32[3, d, h, w], k: i32, {EXTENTS}",
    cuda=cuda.CURL,
    grid=_blocks,
)
def curl(u: Any, open: Any, out: Any) -> None:
    """Vorticity times the spacing."""
    _cpu().curl(u, open, out)


@kernel(
    f"in vorticity: f32[3, d, h, w], in open: {FLOW}, out force: {FLOW}, k: i32, {EXTENTS},strength: f32",
    cuda=cuda.SWIRL,
    grid=_blocks,
)
def swirl(vorticity: Any, open: Any, force: Any, strength: float) -> None:
    """Confinement of vortices; see :func:`.plain.swirl`."""
    _cpu().swirl(vorticity, open, force, np.float32(strength))


@kernel(
    f"inout u: {FLOW}, in open: {FLOW}, in dye: {DYE}, in force: {FLOW},"
    f"in buoyancy: f32[c], in dt: f32[1], k: i32, c: i32, {EXTENTS}",
    cuda=cuda.PUSH,
    grid=_blocks,
)
def push(u: Any, open: Any, dye: Any, force: Any, buoyancy: Any, dt: Any) -> None:
    """Add forces; see :func:`.plain.push`."""
    _cpu().push(u, open, dye, force, buoyancy, np.float32(dt[0]))


@kernel(
    f"inout u: {FLOW}, in before: {FLOW}, in open: {FLOW}, in dt: f32[1], k: i32,"
    f"{EXTENTS}, per: f32, odd: i32, colour: i32",
    cuda=cuda.DIFFUSE,
    grid=_blocks,
)
def diffuse(u: Any, before: Any, open: Any, dt: Any, per: float, odd: int, colour: int) -> None:
    """One colour of a sweep of the viscosity."""
    _cpu().diffuse(u, before, open, np.float32(dt[0] * np.float32(per)), int(odd), int(colour))


@kernel(f"in u: {FLOW}, out out: {FIELD}, k: i32, {EXTENTS}", cuda=cuda.DIVERGENCE, grid=_blocks)
def divergence(u: Any, out: Any) -> None:
    """What leaves each cell."""
    _cpu().divergence(u, out)


@kernel(
    f"inout u: {FLOW}, in p: {FIELD}, in open: {FLOW}, k: i32, {EXTENTS}",
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
