"""Forces that a step adds beside those of a configuration: between particles, and of functions."""

from typing import Any

import numpy as np

from callboard.device.client.handle import Device
from callboard.kernel.nvrtc.decorated import kernel
from callboard.realtime.base.engines import engine
from callboard.realtime.base.rule import Arrays
from callboard.realtime.cloth.kernels import begins, buckets
from callboard.realtime.particles.config import Contact

__all__ = ["between", "contacts", "kick"]

PACKAGE = "callboard.realtime.particles"

CONTACTS = r"""
extern "C" __global__ void contacts(
    const float *x, const float *v, const float *life, const int *order, const int *starts, float *out, int n, int s,
    float diameter, float stiffness, float damping
) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const float px = x[i], py = x[n + i], pz = x[2 * n + i];
    const int cx = (int)floorf(px / diameter), cy = (int)floorf(py / diameter), cz = (int)floorf(pz / diameter);
    float ax = 0.0f, ay = 0.0f, az = 0.0f;
    for (int k = 0; k < 27 && life[i] > 0.0f; ++k) {
        const int ox = cx + k / 9 - 1, oy = cy + k / 3 % 3 - 1, oz = cz + k % 3 - 1;
        const unsigned where = ((unsigned)ox * 73856093u ^ (unsigned)oy * 19349663u ^ (unsigned)oz * 83492791u)
                             & (unsigned)(s - 2);
        for (int l = starts[where]; l < starts[where + 1]; ++l) {
            const int j = order[l];
            const float qx = x[j], qy = x[n + j], qz = x[2 * n + j], dx = px - qx, dy = py - qy, dz = pz - qz;
            const float distance = sqrtf(dx * dx + dy * dy + dz * dz);
            if (distance >= diameter || distance <= 1e-12f || life[j] <= 0.0f) continue;
            if ((int)floorf(qx / diameter) != ox || (int)floorf(qy / diameter) != oy ||
                (int)floorf(qz / diameter) != oz) continue;
            const float ux = v[i] - v[j], uy = v[n + i] - v[n + j], uz = v[2 * n + i] - v[2 * n + j];
            const float apart = (ux * dx + uy * dy + uz * dz) / distance;
            const float push = fmaxf(stiffness * (diameter - distance) - damping * apart, 0.0f) / distance;
            ax += push * dx, ay += push * dy, az += push * dz;
        }
    }
    out[i] = ax, out[n + i] = ay, out[2 * n + i] = az;
}
"""

KICK = r"""
extern "C" __global__ void kick(float *v, const float *a, const float *step, int n, float part) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < 3 * n) v[i] += a[i] * (step[0] * part);
}
"""


def between(device: Device, arrays: Arrays, contact: Contact) -> Any:
    """Accelerations by contacts: particles are sorted by the cells of a grid, as wide as a particle."""
    a: Any = arrays
    x, size = a["x"], a["starts"].shape[0] - 1
    keys, order = device.cub.sort_pairs(buckets(x, contact.diameter, size), a["index"])
    begins(keys, a["starts"])
    return contacts(
        x, a["v"], a["life"], order, a["starts"], contact.diameter, contact.stiffness, contact.damping
    )  # fmt: skip


@kernel(
    "in x: f32[3, n], in v: f32[3, n], in life: f32[n], in order: i32[n], in starts: i32[s], out out: f32[3, n],"
    "n: i32, s: i32, diameter: f32, stiffness: f32, damping: f32",
    cuda=CONTACTS,
    grid=lambda n: -(-n // 128),
    block=128,
)
def contacts(
    x: Any, v: Any, life: Any, order: Any, starts: Any, out: Any, diameter: float, stiffness: float, damping: float
) -> None:
    """Accelerations of particles that touch; see :func:`.plain.contacts`."""
    numbers = (np.float32(one) for one in (diameter, stiffness, damping))
    engine(f"{PACKAGE}.plain", f"{PACKAGE}.compiled").contacts(x, v, life, order, starts, out, *numbers)


@kernel(
    "inout v: f32[3, n], in a: f32[3, n], in step: f32[1], n: i32, part: f32",
    cuda=KICK,
    grid=lambda n: -(-3 * n // 256),
    block=256,
)
def kick(v: Any, a: Any, step: Any, part: float) -> None:
    """Velocities after a part of a step under these accelerations."""
    v += a * (step[0] * np.float32(part))
