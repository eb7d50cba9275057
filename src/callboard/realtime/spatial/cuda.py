"""The kernels of a spatial index in CUDA; see :mod:`.plain` for what they compute, and :mod:`.compiled` for how.

They are compiled without fused multiply-add, so that distances have the bits that a CPU's have. Threads take searches
in the order ``turn``, in which those of a warp look at the same points, or in their own where it is empty.
"""

__all__ = ["COUNT", "FILL", "KEYED", "MOVED", "NEAR", "NEAREST", "PLACES"]

HELPERS = r"""
#ifndef INFINITY
#define INFINITY __int_as_float(0x7f800000)
#endif
__device__ int cell(double p, int axis, const double *world) {
    const double found = floor((p - world[axis]) * world[3 + axis]);
    return (int)fmin(fmax(found, world[12]), world[6 + axis] - 1.0);
}
__device__ int bucket(int x, int y, int z, const double *world, int size) {
    if (world[12] == 0.0) return (z * (int)world[7] + y) * (int)world[6] + x;
    return (int)(((unsigned)x * 73856093u ^ (unsigned)y * 19349663u ^ (unsigned)z * 83492791u) & (unsigned)(size - 1));
}
"""

KEYED = (
    HELPERS
    + r"""
extern "C" __global__ void keyed(const double *p, const double *world, unsigned *key, int *index, int n, int size) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const double *q = p + 3ll * i;
    key[i] = bucket(cell(q[0], 0, world), cell(q[1], 1, world), cell(q[2], 2, world), world, size);
    index[i] = i;
}
"""
)

PLACES = r"""
extern "C" __global__ void places(const double *p, const int *order, double *out, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    for (int axis = 0; axis < 3; ++axis) out[(long long)axis * n + i] = p[3ll * order[i] + axis];
}
"""

MOVED = r"""
extern "C" __global__ void moved(double *p, const int *which, const double *to, int k) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= k) return;
    for (int axis = 0; axis < 3; ++axis) p[3ll * which[i] + axis] = to[3ll * i + axis];
}
"""

RANGES = (
    HELPERS
    + r"""
__device__ void extent(double low, double high, int axis, const double *world, long long &first, long long &last) {
    double a = floor((low - world[axis]) * world[3 + axis]), b = floor((high - world[axis]) * world[3 + axis]);
    const double many = world[6 + axis];
    if (world[9 + axis] > 0.0) {
        if (!(b - a + 1.0 < many)) { a = 0.0; b = many - 1.0; }
    } else {
        a = fmin(fmax(a, world[12]), many - 1.0);
        b = fmin(fmax(b, world[12]), many - 1.0);
    }
    first = (long long)a;
    last = (long long)b;
}

__device__ int taken(const int *turn, int t, int i) {
    return t ? turn[i] : i;
}
"""
)

SEARCH = (
    RANGES
    + r"""
struct Search {
    double q[3], h[3], r2;
    const double *points, *world;
    const int *order, *starts;
    int n, size, mode, k, found;
    int *rows;
    double *distances;
};

__device__ int wrapped(long long c, int axis, const double *world) {
    if (!(world[9 + axis] > 0.0)) return (int)c;
    const long long many = (long long)world[6 + axis];
    return (int)((c % many + many) % many);
}

__device__ void keep(Search &s, int row, double d2) {
    int last = s.found;
    if (s.found == s.k) {
        last = s.k - 1;
        if (d2 > s.distances[last] || (d2 == s.distances[last] && row > s.rows[last])) return;
    } else {
        ++s.found;
    }
    for (; last > 0; --last) {
        if (s.distances[last - 1] < d2 || (s.distances[last - 1] == d2 && s.rows[last - 1] < row)) break;
        s.rows[last] = s.rows[last - 1];
        s.distances[last] = s.distances[last - 1];
    }
    s.rows[last] = row;
    s.distances[last] = d2;
}

__device__ void run(Search &s, int begin, int end, bool checked, int x, int y, int z) {
    for (int j = begin; j < end; ++j) {
        double p[3], d2 = 0.0;
        for (int axis = 0; axis < 3; ++axis) p[axis] = s.points[(long long)axis * s.n + j];
        if (checked && (cell(p[0], 0, s.world) != x || cell(p[1], 1, s.world) != y || cell(p[2], 2, s.world) != z))
            continue;
        bool hit = true;
        for (int axis = 0; axis < 3; ++axis) {
            const double period = s.world[9 + axis];
            if (s.r2 < 0.0) {
                if (p[axis] < s.q[axis]) p[axis] += period;
                hit = hit && p[axis] >= s.q[axis] && p[axis] <= s.h[axis];
            } else {
                double d = fabs(p[axis] - s.q[axis]);
                if (period > 0.0) d = fmin(d, period - d);
                d2 += d * d;
            }
        }
        if (!hit || (s.r2 >= 0.0 && d2 > s.r2)) continue;
        if (s.mode == 2) {
            keep(s, s.order[j], d2);
            continue;
        }
        if (s.mode == 1) {
            s.rows[s.found] = s.order[j];
            s.distances[s.found] = sqrt(d2);
        }
        ++s.found;
    }
}

__device__ bool walk(Search &s, const double *low, const double *high) {
    long long lx, hx, ly, hy, lz, hz;
    extent(low[0], high[0], 0, s.world, lx, hx);
    extent(low[1], high[1], 1, s.world, ly, hy);
    extent(low[2], high[2], 2, s.world, lz, hz);
    const bool hashed = s.world[12] < 0.0;
    s.found = 0;
    if ((double)(hy - ly + 1) * (double)(hz - lz + 1) * (hashed ? (double)(hx - lx + 1) : 1.0) > s.n) {
        if (s.mode == 2) s.r2 = INFINITY;
        run(s, 0, s.n, false, 0, 0, 0);
        return true;
    }
    for (long long z = lz; z <= hz; ++z) {
        const int wz = wrapped(z, 2, s.world);
        for (long long y = ly; y <= hy; ++y) {
            const int wy = wrapped(y, 1, s.world);
            for (long long x = lx; x <= hx;) {
                const int wx = wrapped(x, 0, s.world);
                long long length = 1;
                if (!hashed) {
                    length = (long long)s.world[6] - wx;
                    if (length > hx - x + 1) length = hx - x + 1;
                }
                const int b = bucket(wx, wy, wz, s.world, s.size);
                run(s, s.starts[b], s.starts[b + length], hashed, wx, wy, wz);
                x += length;
            }
        }
    }
    return false;
}

__device__ bool around(Search &s, double r) {
    double low[3], high[3];
    for (int axis = 0; axis < 3; ++axis) {
        const double reach = r + 1e-12 * (fabs(s.q[axis]) + r);
        low[axis] = s.q[axis] - reach;
        high[axis] = s.q[axis] + reach;
    }
    s.r2 = r * r;
    return walk(s, low, high);
}

__device__ void begin(Search &s, int i, const double *a, const double *b, int w, int h) {
    const double *far = b + (w == 1 ? 0 : (long long)i * h);
    for (int axis = 0; axis < 3; ++axis) {
        s.q[axis] = a[3ll * i + axis];
        s.h[axis] = h == 3 ? far[axis] : 0.0;
    }
    s.r2 = -1.0;
    if (h == 3) walk(s, s.q, s.h);
    else around(s, far[0]);
}
"""
)

NEAR = (
    RANGES
    + r"""
__device__ int counted(double x, double y, double z, double r2, const double *points, int n, int begin, int end) {
    const double *px = points, *py = points + n, *pz = points + 2ll * n;
    int found = 0;
#pragma unroll 4
    for (int j = begin; j < end; ++j) {
        const double dx = px[j] - x, dy = py[j] - y, dz = pz[j] - z;
        found += dx * dx + dy * dy + dz * dz <= r2;
    }
    return found;
}

extern "C" __global__ void near(
    const double *a, const double *b, const int *turn, const double *points, const int *starts, const double *world,
    long long *counts, int m, int w, int t, int n
) {
    const int k = blockIdx.x * blockDim.x + threadIdx.x;
    if (k >= m) return;
    const int i = taken(turn, t, k);
    const double x = a[3ll * i], y = a[3ll * i + 1], z = a[3ll * i + 2], r = b[w == 1 ? 0 : i];
    const double q[3] = {x, y, z};
    long long first[3], last[3];
    for (int axis = 0; axis < 3; ++axis) {
        const double reach = r + 1e-12 * (fabs(q[axis]) + r);
        extent(q[axis] - reach, q[axis] + reach, axis, world, first[axis], last[axis]);
    }
    int found = 0;
    if ((double)(last[1] - first[1] + 1) * (double)(last[2] - first[2] + 1) > n) {
        found = counted(x, y, z, r * r, points, n, 0, n);
    } else {
        const int wide = (int)world[6], high = (int)world[7], length = (int)(last[0] - first[0]) + 1;
        for (int v = (int)first[2]; v <= (int)last[2]; ++v) {
            for (int u = (int)first[1]; u <= (int)last[1]; ++u) {
                const int *start = starts + (v * high + u) * wide + (int)first[0];
                found += counted(x, y, z, r * r, points, n, start[0], start[length]);
            }
        }
    }
    counts[i] = found;
}
"""
)

COUNT = (
    SEARCH
    + r"""
extern "C" __global__ void count(
    const double *a, const double *b, const int *turn, const double *points, const int *starts, const double *world,
    long long *counts, int m, int w, int h, int t, int n, int s
) {
    const int k = blockIdx.x * blockDim.x + threadIdx.x;
    if (k >= m) return;
    const int i = taken(turn, t, k);
    Search one = {{}, {}, 0.0, points, world, 0, starts, n, s - 1, 0, 0, 0, 0, 0};
    begin(one, i, a, b, w, h);
    counts[i] = one.found;
}
"""
)

FILL = (
    SEARCH
    + r"""
extern "C" __global__ void fill(
    const double *a, const double *b, const int *turn, const double *points, const int *order, const int *starts,
    const double *world, const long long *offsets, int *rows, double *distances, int m, int w, int h, int t, int n,
    int s
) {
    const int k = blockIdx.x * blockDim.x + threadIdx.x;
    if (k >= m) return;
    const int i = taken(turn, t, k);
    Search one = {
        {}, {}, 0.0, points, world, order, starts, n, s - 1, 1, 0, 0, rows + offsets[i], distances + offsets[i]
    };
    begin(one, i, a, b, w, h);
}
"""
)

NEAREST = (
    SEARCH
    + r"""
extern "C" __global__ void nearest(
    const double *a, const int *turn, const double *points, const int *order, const int *starts, const double *world,
    int *rows, double *distances, int m, int t, int n, int s, int k, double first
) {
    const int at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= m) return;
    const int i = taken(turn, t, at);
    Search one = {
        {a[3ll * i], a[3ll * i + 1], a[3ll * i + 2]}, {}, 0.0, points, world, order, starts, n, s - 1, 2, k, 0,
        rows + (long long)i * k, distances + (long long)i * k
    };
    const int most = k < n ? k : n;
    double r = first;
    while (!around(one, r) && one.found < most) r *= 2.0;
    for (int column = 0; column < k; ++column) {
        if (column < one.found) {
            one.distances[column] = sqrt(one.distances[column]);
        } else {
            one.rows[column] = -1;
            one.distances[column] = INFINITY;
        }
    }
}
"""
)
