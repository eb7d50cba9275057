"""The ops of particles: what a CPU computes, and CUDA."""

from typing import Any

from callboard.kernel.nvrtc.decorated import kernel
from callboard.realtime.base.engines import engine
from callboard.realtime.particles import plain

__all__ = ["advance", "emit", "tick"]

PACKAGE = "callboard.realtime.particles"

MOVES = r"""
__device__ float3 at(const float *p, int i, int n) { return make_float3(p[i], p[n + i], p[2 * n + i]); }
__device__ void put(float *p, int i, int n, float3 q) { p[i] = q.x; p[n + i] = q.y; p[2 * n + i] = q.z; }
__device__ float3 plus(float3 a, float3 b, float s) { return make_float3(a.x + b.x * s, a.y + b.y * s, a.z + b.z * s); }
__device__ float dot(float3 a, float3 b) { return a.x * b.x + a.y * b.y + a.z * b.z; }

__device__ float3 acceleration(float3 x, float3 v, const float *world, const float *fields, int f) {
    float3 a = make_float3(world[0] - world[3] * v.x, world[1] - world[3] * v.y, world[2] - world[3] * v.z);
    for (int k = 0; k < f; ++k) {
        const float *r = fields + 12 * k;
        const int kind = (int)r[0];
        const float3 c = make_float3(r[1], r[2], r[3]), o = make_float3(r[4], r[5], r[6]);
        const float3 to = plus(c, x, -1.0f);
        if (kind == 1) {
            const float square = dot(to, to) + r[8] * r[8];
            a = plus(a, to, r[7] / (square * sqrtf(square)));
        } else if (kind == 2) {
            a = plus(a, to, r[7]);
        } else if (kind == 3) {
            const float3 d = plus(x, c, -1.0f);
            const float3 cross = make_float3(o.y * d.z - o.z * d.y, o.z * d.x - o.x * d.z, o.x * d.y - o.y * d.x);
            a = plus(a, cross, r[7]);
        } else if (kind == 4) {
            a = plus(a, plus(o, v, -1.0f), r[7]);
        }
    }
    return a;
}

__device__ float clamped(float p, float &u, float low, float high, float left) {
    if ((p < low && u < 0.0f) || (p > high && u > 0.0f)) u *= -left;
    return fminf(fmaxf(p, low), high);
}

__device__ void stopped(float3 &x, float3 &v, const float *r) {
    const int kind = (int)r[0];
    const float left = r[7];
    if (kind == 4) {
        x.x = clamped(x.x, v.x, r[1], r[4], left);
        x.y = clamped(x.y, v.y, r[2], r[5], left);
        x.z = clamped(x.z, v.z, r[3], r[6], left);
        return;
    }
    if (kind == 0) return;
    float3 normal = make_float3(r[1], r[2], r[3]);
    float depth;
    if (kind == 1) {
        depth = dot(x, normal) - r[4];
    } else {
        const float sign = kind == 2 ? 1.0f : -1.0f;
        const float3 from = plus(x, normal, -1.0f);
        const float distance = sqrtf(dot(from, from));
        depth = sign * (distance - r[4]);
        const float factor = sign / fmaxf(distance, 1e-12f);
        normal = make_float3(from.x * factor, from.y * factor, from.z * factor);
    }
    if (depth >= 0.0f) return;
    x = plus(x, normal, -depth);
    const float along = dot(v, normal);
    if (along < 0.0f) {
        const float3 slid = plus(v, normal, -along);
        const float slip = 1.0f - r[8];
        v = plus(make_float3(slid.x * slip, slid.y * slip, slid.z * slip), normal, -left * along);
    }
}

extern "C" __global__ void advance(
    float *px, float *pv, float *life, const float *step, const float *world, const float *fields,
    const float *colliders, int n, int f, int c, int method, int mortal
) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const float dt = step[0], half = 0.5f * dt;
    float3 x = at(px, i, n), v = at(pv, i, n);
    if (mortal) {
        const float left = life[i] - dt;
        life[i] = left;
        if (left <= 0.0f) {
            put(pv, i, n, make_float3(0.0f, 0.0f, 0.0f));
            return;
        }
    }
    const float3 a = acceleration(x, v, world, fields, f);
    if (method == 0) {
        v = plus(v, a, dt);
        x = plus(x, v, dt);
    } else if (method == 1) {
        v = plus(v, a, half);
        x = plus(x, v, dt);
        v = plus(v, acceleration(x, v, world, fields, f), half);
    } else {
        const float3 va = plus(v, a, half), b = acceleration(plus(x, v, half), va, world, fields, f);
        const float3 vb = plus(v, b, half), c3 = acceleration(plus(x, va, half), vb, world, fields, f);
        const float3 vc = plus(v, c3, dt), d = acceleration(plus(x, vb, dt), vc, world, fields, f);
        const float sixth = dt / 6.0f;
        x = plus(x, plus(plus(plus(v, va, 2.0f), vb, 2.0f), vc, 1.0f), sixth);
        v = plus(v, plus(plus(plus(a, b, 2.0f), c3, 2.0f), d, 1.0f), sixth);
    }
    for (int k = 0; k < c; ++k) stopped(x, v, colliders + 12 * k);
    put(px, i, n, x);
    put(pv, i, n, v);
}
"""

EMITS = r"""
__device__ float drawn(unsigned seed, unsigned emitter, unsigned serial, unsigned axis) {
    const unsigned fixed = seed * 0x9E3779B9u ^ (emitter + 1) * 0x85EBCA6Bu ^ (axis + 1) * 0x27D4EB2Fu;
    unsigned h = serial * 0xC2B2AE35u ^ fixed;
    h = (h ^ (h >> 16)) * 0x7FEB352Du;
    h = (h ^ (h >> 15)) * 0x846CA68Bu;
    h ^= h >> 16;
    return (float)(h >> 8) * 1.1920928955078125e-7f - 1.0f;
}

__device__ long long before(const float *row, double time) {
    return (long long)floor((row[0] != 0.0f ? (double)row[7] : 0.0) * time);
}

extern "C" __global__ void emit(
    float *px, float *pv, float *life, const int *rank, const double *clock, const float *step, const float *emitters,
    int n, int e, unsigned seed
) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n || life[i] > 0.0f) return;
    long long place = rank[i];
    for (int k = 0; k < e; ++k) {
        const float *row = emitters + 12 * k;
        const long long first = before(row, clock[0]), count = before(row, clock[0] + (double)step[0]) - first;
        if (place < count) {
            const unsigned serial = (unsigned)(first + place);
            for (int axis = 0; axis < 3; ++axis) {
                px[axis * n + i] = row[1 + axis] + row[8] * drawn(seed, k, serial, axis);
                pv[axis * n + i] = row[4 + axis] + row[9] * drawn(seed, k, serial, 3 + axis);
            }
            life[i] = row[10];
            return;
        }
        place -= count;
    }
}
"""

TICKS = r"""
extern "C" __global__ void tick(
    double *clock, const int *rank, const int *free, const float *step, const float *emitters, int n, int e
) {
    long long wanted = 0;
    for (int k = 0; k < e; ++k) {
        const double rate = emitters[12 * k] != 0.0f ? (double)emitters[12 * k + 7] : 0.0;
        wanted += (long long)floor(rate * (clock[0] + (double)step[0])) - (long long)floor(rate * clock[0]);
    }
    const long long room = rank[n - 1] + free[n - 1], made = wanted < room ? wanted : room;
    clock[0] += (double)step[0];
    clock[1] += (double)made;
    clock[2] += (double)(wanted - made);
}
"""


@kernel(
    "inout x: f32[3, n], inout v: f32[3, n], inout life: f32[n], in step: f32[1], in world: f32[4],"
    "in fields: f32[f, 12], in colliders: f32[c, 12], n: i32, f: i32, c: i32, method: i32, mortal: i32",
    cuda=MOVES,
    grid=lambda n: -(-n // 256),
    block=256,
)
def advance(
    x: Any, v: Any, life: Any, step: Any, world: Any, fields: Any, colliders: Any, method: int, mortal: int
) -> None:
    """Move particles; see :func:`.plain.advance`."""
    moves = engine(f"{PACKAGE}.plain", f"{PACKAGE}.compiled")
    moves.advance(x, v, life, step[0], world, fields, colliders, int(method), int(mortal))


@kernel(
    "inout x: f32[3, n], inout v: f32[3, n], inout life: f32[n], in rank: i32[n], in clock: f64[3], in step: f32[1],"
    "in emitters: f32[e, 12], n: i32, e: i32, seed: u32",
    cuda=EMITS,
    grid=lambda n: -(-n // 256),
    block=256,
)
def emit(x: Any, v: Any, life: Any, rank: Any, clock: Any, step: Any, emitters: Any, seed: int) -> None:
    """Make particles in free slots; see :func:`.plain.emit`."""
    plain.emit(x, v, life, clock, step[0], emitters, int(seed))


@kernel(
    "inout clock: f64[3], in rank: i32[n], in free: i32[n], in step: f32[1], in emitters: f32[e, 12], n: i32, e: i32",
    cuda=TICKS,
    grid=1,
    block=1,
)
def tick(clock: Any, rank: Any, free: Any, step: Any, emitters: Any) -> None:
    """Move the clock: seconds, particles made, and particles for which there was no slot."""
    plain.tick(clock, rank, free, step[0], emitters)
