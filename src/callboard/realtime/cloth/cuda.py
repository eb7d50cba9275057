"""The kernels of cloth in CUDA; see :mod:`.plain` for what they compute."""

__all__ = ["APART", "BEGINS", "BUCKETS", "FINISH", "PREDICT", "SOLVE", "STOP", "TORN"]

HELPERS = r"""
__device__ float3 at(const float *p, int i, int n) { return make_float3(p[i], p[n + i], p[2 * n + i]); }
__device__ void put(float *p, int i, int n, float3 q) { p[i] = q.x; p[n + i] = q.y; p[2 * n + i] = q.z; }
__device__ float3 less(float3 a, float3 b) { return make_float3(a.x - b.x, a.y - b.y, a.z - b.z); }
__device__ float3 plus(float3 a, float3 b, float s) { return make_float3(a.x + b.x * s, a.y + b.y * s, a.z + b.z * s); }
__device__ float dot(float3 a, float3 b) { return a.x * b.x + a.y * b.y + a.z * b.z; }
__device__ float3 cross(float3 a, float3 b) {
    return make_float3(a.y * b.z - a.z * b.y, a.z * b.x - a.x * b.z, a.x * b.y - a.y * b.x);
}
__device__ unsigned bucket(int x, int y, int z, int size) {
    return ((unsigned)x * 73856093u ^ (unsigned)y * 19349663u ^ (unsigned)z * 83492791u) & (unsigned)(size - 1);
}
"""

PREDICT = (
    HELPERS
    + r"""
extern "C" __global__ void predict(
    const float *px, float *pv, float *pq, const float *w, const float *open, const int *fan_starts, const int *fans,
    const float *dt, const float *world, int n, int f, int substeps
) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const float h = dt[0] / substeps;
    const float3 x = at(px, i, n);
    if (open[i] == 0.0f) {
        put(pv, i, n, make_float3(0.0f, 0.0f, 0.0f));
        put(pq, i, n, x);
        return;
    }
    float3 v = at(pv, i, n), a = make_float3(world[0], world[1], world[2]);
    if (world[7] != 0.0f) {
        const float3 relative = less(make_float3(world[4], world[5], world[6]), v);
        float3 force = make_float3(0.0f, 0.0f, 0.0f);
        for (int k = fan_starts[i]; k < fan_starts[i + 1]; ++k) {
            const float3 c = cross(less(at(px, fans[k], n), x), less(at(px, fans[f + k], n), x));
            force = plus(force, c, world[7] / 6.0f * dot(relative, c) / fmaxf(sqrtf(dot(c, c)), 1e-12f));
        }
        a = plus(a, force, w[i]);
    }
    const float keep = 1.0f / (1.0f + world[3] * h);
    v = plus(make_float3(v.x * keep, v.y * keep, v.z * keep), a, h);
    put(pv, i, n, v);
    put(pq, i, n, plus(x, v, h));
}
"""
)

SOLVE = (
    HELPERS
    + r"""
extern "C" __global__ void solve(
    float *q, float *load, const int *springs, const float *rest, const unsigned char *kinds, const float *w,
    const float *open, const float *compliance, const float *dt, int n, int m, int first, int count, int substeps,
    int again
) {
    const int c = first + blockIdx.x * blockDim.x + threadIdx.x;
    if (c >= first + count) return;
    const int i = springs[c], j = springs[m + c];
    const float h = dt[0] / substeps, wi = w[i] * open[i], wj = w[j] * open[j], before = again ? load[c] : 0.0f;
    const float3 a = at(q, i, n), b = at(q, j, n), d = less(a, b);
    const float length = sqrtf(dot(d, d));
    if (wi + wj <= 0.0f || rest[c] < 0.0f || length <= 1e-12f) {
        load[c] = before;
        return;
    }
    const float give = compliance[kinds[c]];
    const float change = (rest[c] - length - give * before) / (wi + wj + give / (h * h));
    load[c] = before + change / (h * h);
    put(q, i, n, plus(a, d, wi * change / length));
    put(q, j, n, plus(b, d, -wj * change / length));
}
"""
)

STOP = (
    HELPERS
    + r"""
extern "C" __global__ void stop(
    float *pq, const float *px, const float *open, const float *colliders, int n, int c, float margin
) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n || open[i] == 0.0f) return;
    float3 q = at(pq, i, n);
    const float3 x = at(px, i, n);
    for (int k = 0; k < c; ++k) {
        const float *row = colliders + 12 * k;
        const int kind = (int)row[0];
        if (kind == 0) continue;
        float3 normal = make_float3(row[1], row[2], row[3]);
        float depth;
        if (kind == 1) {
            depth = dot(q, normal) - row[4];
        } else {
            const float sign = kind == 3 ? -1.0f : 1.0f;
            const float3 away = less(q, normal);
            const float distance = sqrtf(dot(away, away)), factor = sign / fmaxf(distance, 1e-12f);
            depth = sign * (distance - row[4]);
            normal = make_float3(away.x * factor, away.y * factor, away.z * factor);
        }
        if (depth >= margin) continue;
        q = plus(q, normal, margin - depth);
        const float3 way = less(q, x);
        q = plus(q, plus(way, normal, -dot(way, normal)), -row[8]);
    }
    put(pq, i, n, q);
}
"""
)

FINISH = r"""
extern "C" __global__ void finish(float *x, float *v, const float *q, const float *dt, int n, int substeps) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= 3 * n) return;
    v[i] = (q[i] - x[i]) / (dt[0] / substeps);
    x[i] = q[i];
}
"""

TORN = (
    HELPERS
    + r"""
extern "C" __global__ void torn(
    float *rest, float *load, const float *x, const int *springs, int n, int m, float most
) {
    const int c = blockIdx.x * blockDim.x + threadIdx.x;
    if (c >= m) return;
    const float3 d = less(at(x, springs[c], n), at(x, springs[m + c], n));
    if (rest[c] > 0.0f && sqrtf(dot(d, d)) > most * rest[c]) {
        rest[c] = -rest[c];
        load[c] = 0.0f;
    }
}
"""
)

BUCKETS = (
    HELPERS
    + r"""
extern "C" __global__ void buckets(const float *q, unsigned *key, int n, float cell, int size) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const float3 p = at(q, i, n);
    key[i] = bucket((int)floorf(p.x / cell), (int)floorf(p.y / cell), (int)floorf(p.z / cell), size);
}
"""
)

BEGINS = r"""
extern "C" __global__ void begins(const unsigned *keys, int *starts, int n, int s) {
    const int b = blockIdx.x * blockDim.x + threadIdx.x;
    if (b >= s) return;
    int low = 0, high = n;
    while (low < high) {
        const int middle = (low + high) / 2;
        if (keys[middle] < (unsigned)b) low = middle + 1;
        else high = middle;
    }
    starts[b] = low;
}
"""

APART = (
    HELPERS
    + r"""
extern "C" __global__ void apart(
    const float *q, float *out, const int *order, const int *starts, const float *home, const float *w,
    const float *open, int n, int s, float thickness
) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const float3 p = at(q, i, n), h = at(home, i, n);
    const int cx = (int)floorf(p.x / thickness), cy = (int)floorf(p.y / thickness), cz = (int)floorf(p.z / thickness);
    const float wi = w[i] * open[i];
    float3 push = make_float3(0.0f, 0.0f, 0.0f);
    float many = 0.0f;
    for (int k = 0; k < 27 && wi > 0.0f; ++k) {
        const int x = cx + k / 9 - 1, y = cy + k / 3 % 3 - 1, z = cz + k % 3 - 1;
        const unsigned where = bucket(x, y, z, s - 1);
        for (int l = starts[where]; l < starts[where + 1]; ++l) {
            const int j = order[l];
            const float3 other = at(q, j, n), d = less(p, other), before = less(h, at(home, j, n));
            const float distance = sqrtf(dot(d, d));
            if (distance >= thickness || distance <= 1e-12f || dot(before, before) < thickness * thickness) continue;
            if ((int)floorf(other.x / thickness) != x || (int)floorf(other.y / thickness) != y ||
                (int)floorf(other.z / thickness) != z) continue;
            push = plus(push, d, (thickness / distance - 1.0f) * wi / (wi + w[j] * open[j]));
            many += 1.0f;
        }
    }
    put(out, i, n, plus(p, push, 1.0f / fmaxf(many, 1.0f)));
}
"""
)
