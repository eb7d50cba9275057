"""Obstacles of any shape: signed distances on a grid, for particles, cloth and fluids."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from callboard.kernel.nvrtc.decorated import kernel
from callboard.realtime.particles.obstacles import DistanceField

__all__ = ["TEXT", "fence", "fenced", "held", "hold", "numbers", "sampled", "values_of"]

TEXT = r"""
struct Near { bool hit; float depth, x, y, z; };
__device__ Near sampled(
    const float *values, float px, float py, float pz, int d, int h, int w, float ox, float oy, float oz, float spacing
) {
    const float x = (px - ox) / spacing, y = (py - oy) / spacing, z = (pz - oz) / spacing;
    Near found = {false, 0.0f, 0.0f, 0.0f, 0.0f};
    if (!(x >= 0.0f && y >= 0.0f && z >= 0.0f && x <= w - 1 && y <= h - 1 && z <= d - 1)) return found;
    const int i = min((int)x, w - 2), j = min((int)y, h - 2), k = min((int)z, d - 2);
    const float a = x - i, b = y - j, c = z - k;
    float v[8];
    for (int n = 0; n < 8; ++n) v[n] = values[((long long)(k + (n >> 2)) * h + j + (n >> 1 & 1)) * w + i + (n & 1)];
    float along[4], slope[4];
    for (int n = 0; n < 4; ++n) slope[n] = v[2 * n + 1] - v[2 * n], along[n] = v[2 * n] + a * slope[n];
    const float low = along[0] + b * (along[1] - along[0]), high = along[2] + b * (along[3] - along[2]);
    found.depth = low + c * (high - low);
    const float sx = slope[0] + b * (slope[1] - slope[0]), tx = slope[2] + b * (slope[3] - slope[2]);
    const float sy = along[1] - along[0], ty = along[3] - along[2];
    const float gx = sx + c * (tx - sx), gy = sy + c * (ty - sy), gz = high - low;
    const float length = sqrtf(gx * gx + gy * gy + gz * gz);
    if (length <= 1e-12f) return found;
    found.hit = true, found.x = gx / length, found.y = gy / length, found.z = gz / length;
    return found;
}

extern "C" __global__ void fence(
    float *x, float *v, const float *values, int n, int d, int h, int w, float ox, float oy, float oz, float spacing,
    float restitution, float friction
) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const Near at = sampled(values, x[i], x[n + i], x[2 * n + i], d, h, w, ox, oy, oz, spacing);
    if (!at.hit || at.depth >= 0.0f) return;
    x[i] -= at.depth * at.x, x[n + i] -= at.depth * at.y, x[2 * n + i] -= at.depth * at.z;
    const float along = v[i] * at.x + v[n + i] * at.y + v[2 * n + i] * at.z, slip = 1.0f - friction;
    if (along >= 0.0f) return;
    const float push = along * (slip + restitution);
    v[i] = v[i] * slip - push * at.x;
    v[n + i] = v[n + i] * slip - push * at.y;
    v[2 * n + i] = v[2 * n + i] * slip - push * at.z;
}

extern "C" __global__ void hold(
    float *q, const float *x, const float *open, const float *values, int n, int d, int h, int w, float ox, float oy,
    float oz, float spacing, float friction, float margin
) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n || open[i] == 0.0f) return;
    const Near at = sampled(values, q[i], q[n + i], q[2 * n + i], d, h, w, ox, oy, oz, spacing);
    if (!at.hit || at.depth >= margin) return;
    const float out = margin - at.depth;
    const float px = q[i] + out * at.x, py = q[n + i] + out * at.y, pz = q[2 * n + i] + out * at.z;
    const float wx = px - x[i], wy = py - x[n + i], wz = pz - x[2 * n + i];
    const float along = wx * at.x + wy * at.y + wz * at.z;
    q[i] = px - friction * (wx - along * at.x);
    q[n + i] = py - friction * (wy - along * at.y);
    q[2 * n + i] = pz - friction * (wz - along * at.z);
}
"""
GRID = "n: i32, d: i32, h: i32, w: i32, ox: f32, oy: f32, oz: f32, spacing: f32"
TINY = np.float32(1e-12)
Floats = NDArray[np.float32]


def values_of(field: DistanceField) -> Floats:
    """The distances, f32 ``[d, h, w]``."""
    return np.frombuffer(field.values, "<f4").reshape(field.extents[::-1])


def numbers(field: DistanceField) -> tuple[float, ...]:
    """Of kernels: origin and spacing."""
    return (*field.origin, field.spacing)


def sampled(values: Any, places: Any, origin: Any, spacing: Any) -> tuple[NDArray[np.intp], Floats, Floats]:
    """Which of the places ``[3, n]`` are on the grid, their distances ``[m]``, and directions outwards, ``[3, m]``."""
    at = (places - np.asarray(origin, "f4")[:, None]) / np.float32(spacing)
    last = np.array(values.shape[::-1], "f4")[:, None] - 1
    inside = np.flatnonzero(((at >= 0) & (at <= last)).all(0))
    at = at[:, inside]
    low = np.minimum(at.astype("i4"), last.astype("i4") - 1)
    a, b, c = at - low
    i, j, k = low
    v = [values[k + (n >> 2), j + (n >> 1 & 1), i + (n & 1)] for n in range(8)]
    slope = [v[2 * n + 1] - v[2 * n] for n in range(4)]
    along = [v[2 * n] + a * slope[n] for n in range(4)]
    down, up = along[0] + b * (along[1] - along[0]), along[2] + b * (along[3] - along[2])
    first, second = slope[0] + b * (slope[1] - slope[0]), slope[2] + b * (slope[3] - slope[2])
    sy, ty = along[1] - along[0], along[3] - along[2]
    gradient = np.stack([first + c * (second - first), sy + c * (ty - sy), up - down])
    length = np.sqrt((gradient * gradient).sum(0))
    return inside, down + c * (up - down), np.where(length > TINY, gradient / np.maximum(length, TINY), np.float32(0))


def fenced(x: Any, v: Any, field: DistanceField, values: Any) -> None:
    """Enqueue :func:`fence`."""
    fence(x, v, values, *numbers(field), field.restitution, field.friction)


def held(q: Any, x: Any, free: Any, field: DistanceField, values: Any, margin: float) -> None:
    """Enqueue :func:`hold`."""
    hold(q, x, free, values, *numbers(field), field.friction, margin)


@kernel(
    f"inout x: f32[3, n], inout v: f32[3, n], in values: f32[d, h, w], {GRID}, restitution: f32, friction: f32",
    cuda=TEXT,
    name="fence",
    grid=lambda n: -(-n // 256),
    block=256,
)
def fence(
    x: Any, v: Any, values: Any, ox: Any, oy: Any, oz: Any, spacing: Any, restitution: Any, friction: Any
) -> None:
    """Particles out of an obstacle, with the velocities that it leaves."""
    which, depth, n = sampled(values, x, (ox, oy, oz), spacing)
    hit = depth < 0
    which, depth, n = which[hit], depth[hit], n[:, hit]
    x[:, which] -= depth * n
    along = (v[:, which] * n).sum(0)
    slip = np.float32(1) - friction
    bounced = v[:, which] * slip - along * (slip + restitution) * n
    v[:, which] = np.where(along < 0, bounced, v[:, which])


@kernel(
    f"inout q: f32[3, n], in x: f32[3, n], in open: f32[n], in values: f32[d, h, w],{GRID}, friction: f32, margin: f32",
    cuda=TEXT,
    name="hold",
    grid=lambda n: -(-n // 256),
    block=256,
)
def hold(
    q: Any, x: Any, open: Any, values: Any, ox: Any, oy: Any, oz: Any, spacing: Any, friction: Any, margin: Any
) -> None:
    """Particles of a cloth out of an obstacle, less a part of their way along it."""
    which, depth, n = sampled(values, q, (ox, oy, oz), spacing)
    hit = (depth < margin) & (open[which] > 0) & n.any(0)
    which, depth, n = which[hit], depth[hit], n[:, hit]
    q[:, which] += (margin - depth) * n
    way = q[:, which] - x[:, which]
    q[:, which] -= friction * (way - (way * n).sum(0) * n)
