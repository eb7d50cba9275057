"""The kernels of fluids in CUDA; see :mod:`.plain` for what they compute."""

__all__ = ["ADVECT", "CORRECT", "CURL", "DIFFUSE", "DIVERGENCE", "HEAD", "PROJECT", "PUSH", "SETTLE", "SWIRL"]

HEAD = r"""
#define AXES(a) _Pragma("unroll") for (int a = 0; a < 3; ++a) if (a < k)
__device__ __noinline__ int far(int i, int n) { return (i % n + n) % n; }
__device__ int wrapped(int i, int n) {  // without a division, but where it is far out
    i = i < 0 ? i + n : i >= n ? i - n : i;
    return (unsigned)i < (unsigned)n ? i : far(i, n);
}
struct Cell {
    int at[3], extent[3], i, n;
    bool there;
    __device__ Cell(int d, int h, int w) {  // of a block of 32 by 8
        extent[0] = w, extent[1] = h, extent[2] = d;
        at[0] = blockIdx.x * 32 + threadIdx.x % 32, at[1] = blockIdx.y * 8 + threadIdx.x / 32, at[2] = blockIdx.z % d;
        i = (at[2] * h + at[1]) * w + at[0], n = d * h * w;
        there = at[0] < w && at[1] < h;
    }
    __device__ int step(int axis) const { return axis == 0 ? 1 : axis == 1 ? extent[0] : extent[0] * extent[1]; }
    __device__ int up(int axis) const {
        return at[axis] + 1 < extent[axis] ? i + step(axis) : i - at[axis] * step(axis);
    }
    __device__ int down(int axis) const {
        return at[axis] ? i - step(axis) : i + (extent[axis] - 1) * step(axis);
    }
    __device__ Cell moved(int axis, int by) const {
        Cell other = *this;
        other.i = by > 0 ? up(axis) : down(axis);
        other.at[axis] = wrapped(at[axis] + by, extent[axis]);
        return other;
    }
    __device__ int colour(int odd) const {
        int total = 0;
        for (int a = 0; a < 3; ++a) total += (odd >> a & 1) && at[a] == extent[a] - 1 ? 2 : at[a] & 1;
        return total % (odd ? 3 : 2);
    }
};
"""

TRACE = (
    HEAD
    + r"""
template <int K> __device__ float sample(
    const float *field, const float *where, const Cell &c, int stagger, int periodic, float *low, float *high
) {
    int below[K];
    float part[K];
    #pragma unroll
    for (int a = 0; a < K; ++a) {
        float at = stagger == a ? where[a] + 0.5f : where[a];
        if (!(periodic >> a & 1)) at = fminf(fmaxf(at, 0.0f), (float)(stagger == a ? c.extent[a] : c.extent[a] - 1));
        const float floor = floorf(at);
        below[a] = (int)floor, part[a] = at - floor;
    }
    int along[K][2];
    #pragma unroll
    for (int a = 0; a < K; ++a) {
        const int i = wrapped(below[a], c.extent[a]);
        along[a][0] = i * c.step(a), along[a][1] = i + 1 < c.extent[a] ? along[a][0] + c.step(a) : 0;
    }
    float v[1 << K];
    #pragma unroll
    for (int n = 0; n < 1 << K; ++n) {
        int place = 0;
        #pragma unroll
        for (int a = 0; a < K; ++a) place += along[a][n >> a & 1];
        v[n] = field[place];
        *low = n ? fminf(*low, v[n]) : v[n];
        *high = n ? fmaxf(*high, v[n]) : v[n];
    }
    #pragma unroll
    for (int a = 0; a < K; ++a)
        #pragma unroll
        for (int n = 0; n < 1 << (K - 1 - a); ++n) v[n] = v[2 * n] + part[a] * (v[2 * n + 1] - v[2 * n]);
    return v[0];
}

__device__ float mixed(float a, float b) { return a + 0.5f * (b - a); }

// A component of the velocity in the middle of a cell, or of a face of another axis: half-way between two, or four.
template <int K> __device__ float halfway(const float *f, const Cell &c, int axis, int stagger, int periodic) {
    const int i = c.i, up = c.up(axis) - i;
    if (stagger < 0) return mixed(f[i], f[i + up]);
    int low = i;
    #pragma unroll
    for (int a = 0; a < K; ++a)
        if (a == stagger && (c.at[a] || periodic >> a & 1)) low = c.down(a);
    const float v[] = {f[low], f[low + up], f[i], f[i + up]};
    return axis < stagger ? mixed(mixed(v[0], v[1]), mixed(v[2], v[3])) : mixed(mixed(v[0], v[2]), mixed(v[1], v[3]));
}

template <int K> __device__ void trace(
    const float *u, const float *fluid, const Cell &c, float *where, int stagger, float scale, int periodic, int solid
) {
    float start[K], half[K], way[K], low, high;
    #pragma unroll
    for (int a = 0; a < K; ++a) start[a] = c.at[a] - (stagger == a ? 0.5f : 0.0f);
    #pragma unroll
    for (int a = 0; a < K; ++a) {
        const float *f = u + (long long)a * c.n;
        half[a] = start[a] - 0.5f * scale * (a == stagger ? f[c.i] : halfway<K>(f, c, a, stagger, periodic));
    }
    #pragma unroll
    for (int a = 0; a < K; ++a) way[a] = -scale * sample<K>(u + (long long)a * c.n, half, c, a, periodic, &low, &high);
    float part = 1.0f;
    if (solid) {
        float length = 0.0f;
        #pragma unroll
        for (int a = 0; a < K; ++a) length += way[a] * way[a];
        const float shorter = 8.0f / fmaxf(sqrtf(length), 8.0f);
        #pragma unroll
        for (int a = 0; a < K; ++a) way[a] *= shorter;
        part = 0.0f;
        for (int n = 1; n <= 16; ++n) {
            int place = 0;
            #pragma unroll
            for (int a = 0; a < K; ++a) {
                const int at = (int)floorf(start[a] + n / 16.0f * way[a] + 0.5f);
                place += c.step(a) * (periodic >> a & 1 ? wrapped(at, c.extent[a]) : min(max(at, 0), c.extent[a] - 1));
            }
            if (!(fluid[place] > 0.0f)) break;
            part = n / 16.0f;
        }
    }
    #pragma unroll
    for (int a = 0; a < K; ++a) where[a] = start[a] + way[a] * part;
}
"""
)

ADVECT = (
    TRACE
    + r"""
template <int K> __device__ void advected(
    const float *u, const float *fluid, const float *from, float *to, float scale, int many, const Cell &cell,
    int stagger, int periodic, int solid
) {
    float where[K], low, high;
    trace<K>(u, fluid, cell, where, stagger, scale, periodic, solid);
    for (int n = 0; n < many; ++n, from += cell.n, to += cell.n)
        to[cell.i] = sample<K>(from, where, cell, stagger, periodic, &low, &high);
}
extern "C" __global__ void advect(
    const float *u, const float *fluid, const float *flow, const float *dye, float *flowed, float *dyed,
    const float *dt, int k, int c, int d, int h, int w, float per, int periodic, int solid
) {
    const Cell cell(d, h, w);
    if (!cell.there) return;
    const int group = blockIdx.z / d, stagger = group < k ? group : -1, many = group < k ? 1 : c;
    const long long first = group < k ? (long long)group * cell.n : 0;  // a component of the velocity; else all dyes
    const float *from = group < k ? flow + first : dye;
    const float scale = dt[0] * per;
    float *to = group < k ? flowed + first : dyed;
    if (k == 2) advected<2>(u, fluid, from, to, scale, many, cell, stagger, periodic, solid);
    else advected<3>(u, fluid, from, to, scale, many, cell, stagger, periodic, solid);
}
"""
)

CORRECT = (
    TRACE
    + r"""
template <int K> __device__ void corrected(
    const float *u, const float *fluid, const float *from, const float *there, const float *here, float *to,
    float scale, int many, const Cell &cell, int stagger, int periodic, int solid
) {
    float where[K], low, high;
    trace<K>(u, fluid, cell, where, stagger, scale, periodic, solid);
    for (int n = 0; n < many; ++n, from += cell.n, there += cell.n, here += cell.n, to += cell.n) {
        sample<K>(from, where, cell, stagger, periodic, &low, &high);
        to[cell.i] = fminf(fmaxf(there[cell.i] + 0.5f * (from[cell.i] - here[cell.i]), low), high);
    }
}
extern "C" __global__ void correct(
    const float *u, const float *fluid, const float *dye, const float *flow_ahead, const float *dye_ahead,
    const float *flow_back, const float *dye_back, float *flowed, float *dyed, const float *dt, int k, int c, int d,
    int h, int w, float per, int periodic, int solid
) {
    const Cell cell(d, h, w);
    if (!cell.there) return;
    const int group = blockIdx.z / d, stagger = group < k ? group : -1, many = group < k ? 1 : c;
    const long long first = group < k ? (long long)group * cell.n : 0;
    const float *from = group < k ? u + first : dye;
    const float scale = dt[0] * per;
    const float *there = group < k ? flow_ahead + first : dye_ahead, *here = group < k ? flow_back + first : dye_back;
    float *to = group < k ? flowed + first : dyed;
    if (k == 2) corrected<2>(u, fluid, from, there, here, to, scale, many, cell, stagger, periodic, solid);
    else corrected<3>(u, fluid, from, there, here, to, scale, many, cell, stagger, periodic, solid);
}
"""
)

SETTLE = (
    HEAD
    + r"""
__device__ float inside(const float *row, const float *fluid, const Cell &c, int k, float spacing) {
    float away = 0.0f;
    AXES(a) {
        const float by = (c.at[a] + 0.5f) * spacing - row[a];
        away += by * by;
    }
    return away < row[3] * row[3] ? fluid[c.i] : 0.0f;
}
extern "C" __global__ void settle(
    const float *flowed, const float *dyed, const float *before, const float *after, const float *open,
    const float *fluid, const float *rows, float *u, float *dye, const float *dt, int k, int c, int d, int h, int w,
    int s, float spacing, float fading
) {
    const Cell cell(d, h, w);
    if (!cell.there) return;
    const float scale = fluid[cell.i] / (1.0f + fading * dt[0]);
    for (int n = 0; n < c; ++n) {
        const float factor = before[n] * after[n] > 0.0f ? before[n] / after[n] : 1.0f;
        const long long i = (long long)n * cell.n + cell.i;
        float value = dyed[i] * (fminf(fmaxf(factor, 0.5f), 2.0f) * scale);
        for (int m = 0; m < s; ++m) {
            const float *row = rows + 9 * m;
            if ((int)row[5] == n) value += dt[0] * row[4] * inside(row, fluid, cell, k, spacing);
        }
        dye[i] = value;
    }
    AXES(a) {
        const long long i = (long long)a * cell.n + cell.i;
        const float passes = open[i];
        float value = flowed[i] * passes;
        for (int m = 0; m < s; ++m) {
            const float *row = rows + 9 * m;
            const float here = inside(row, fluid, cell, k, spacing);
            const float before = inside(row, fluid, cell.moved(a, -1), k, spacing);
            value += passes * dt[0] * 0.5f * row[6 + a] * (here + before);
        }
        u[i] = value;
    }
}
"""
)

SLOPE = (
    HEAD
    + r"""
__device__ float middle(const float *u, const Cell &c, int i_axis, const Cell &at) {
    const float *f = u + (long long)i_axis * c.n;
    return 0.5f * (f[at.i] + f[at.up(i_axis)]);
}
__device__ bool passes(const float *open, const Cell &c, int axis) { return open[(long long)axis * c.n + c.i] > 0.0f; }
"""
)

CURL = (
    SLOPE
    + r"""
__device__ float slope(const float *u, const float *open, const Cell &c, int of, int along) {
    const Cell next = c.moved(along, 1), last = c.moved(along, -1);
    const float ahead = middle(u, c, of, passes(open, next, along) ? next : c);
    return 0.5f * (ahead - middle(u, c, of, passes(open, c, along) ? last : c));
}
extern "C" __global__ void curl(const float *u, const float *open, float *out, int k, int d, int h, int w) {
    const Cell cell(d, h, w);
    if (!cell.there) return;
    #pragma unroll
    for (int a = 0; a < 3; ++a) {
        const int b = (a + 1) % 3, c = (a + 2) % 3;
        out[(long long)a * cell.n + cell.i] =
            b < k && c < k ? slope(u, open, cell, c, b) - slope(u, open, cell, b, c) : 0.0f;
    }
}
"""
)

SWIRL = (
    SLOPE
    + r"""
__device__ float size(const float *w, const Cell &c) {
    const float x = w[c.i], y = w[c.i + (long long)c.n], z = w[c.i + 2LL * c.n];
    return sqrtf(x * x + y * y + z * z);
}
extern "C" __global__ void swirl(
    const float *vorticity, const float *open, float *force, int k, int d, int h, int w, float strength
) {
    const Cell cell(d, h, w);
    if (!cell.there) return;
    float n[3] = {0};
    AXES(a) {
        const Cell next = cell.moved(a, 1), last = cell.moved(a, -1);
        const float ahead = size(vorticity, passes(open, next, a) ? next : cell);
        n[a] = 0.5f * (ahead - size(vorticity, passes(open, cell, a) ? last : cell));
    }
    const float length = sqrtf(n[0] * n[0] + n[1] * n[1] + n[2] * n[2]) + 1e-6f;
    AXES(a) {
        const int b = (a + 1) % 3, c = (a + 2) % 3;
        const float *v = vorticity + cell.i;
        force[(long long)a * cell.n + cell.i] =
            strength * (n[b] / length * v[(long long)c * cell.n] - n[c] / length * v[(long long)b * cell.n]);
    }
}
"""
)

PUSH = (
    HEAD
    + r"""
extern "C" __global__ void push(
    float *u, const float *open, const float *dye, const float *force, const float *buoyancy, const float *dt, int k,
    int c, int d, int h, int w
) {
    const Cell cell(d, h, w);
    if (!cell.there) return;
    AXES(a) {
        const long long at = (long long)a * cell.n, i = at + cell.i;
        float here = force[i], before = force[at + cell.down(a)], lift = 0.0f, under = 0.0f;
        if (a == 1) {
            for (int n = 0; n < c; ++n) {
                lift += buoyancy[n] * dye[(long long)n * cell.n + cell.i];
                under += buoyancy[n] * dye[(long long)n * cell.n + cell.down(1)];
            }
        }
        u[i] = open[i] * (u[i] + dt[0] * 0.5f * (here + lift + (before + under)));
    }
}
"""
)

DIFFUSE = (
    HEAD
    + r"""
extern "C" __global__ void diffuse(
    float *u, const float *before, const float *open, const float *dt, int k, int d, int h, int w, float per, int odd,
    int colour
) {
    const Cell cell(d, h, w);
    if (!cell.there || cell.colour(odd) != colour) return;
    const float rate = dt[0] * per;
    AXES(a) {
        const long long of = (long long)a * cell.n;
        float total = before[of + cell.i], weight = 1.0f;
        AXES(b) {
            const float *o = open + (long long)b * cell.n;
            const Cell next = cell.moved(b, 1), last = cell.moved(b, -1);
            const float above = a == b ? 1.0f : o[next.i] * o[next.down(a)];
            const float below = a == b ? 1.0f : o[cell.i] * o[cell.down(a)];
            total += rate * (above * u[of + next.i] + below * u[of + last.i]);
            weight += rate * (above + below);
        }
        u[of + cell.i] = open[of + cell.i] * total / weight;
    }
}
"""
)

DIVERGENCE = (
    HEAD
    + r"""
extern "C" __global__ void divergence(const float *u, float *out, int k, int d, int h, int w) {
    const Cell c(d, h, w);
    if (!c.there) return;
    float total = 0.0f;
    AXES(a) total += u[(long long)a * c.n + c.up(a)] - u[(long long)a * c.n + c.i];
    out[c.i] = total;
}
"""
)

PROJECT = (
    HEAD
    + r"""
extern "C" __global__ void project(float *u, const float *p, const float *open, int k, int d, int h, int w) {
    const Cell c(d, h, w);
    if (!c.there) return;
    AXES(a) {
        const long long i = (long long)a * c.n + c.i;
        u[i] -= open[i] * (p[c.i] - p[c.down(a)]);
    }
}
"""
)
