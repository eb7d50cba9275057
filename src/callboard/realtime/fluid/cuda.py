"""The kernels of fluids in CUDA; see :mod:`.plain` for what they compute."""

__all__ = [
    "ADVECT", "CORRECT", "CURL", "DIFFUSE", "DIVERGENCE", "PROJECT", "PROLONG", "PUSH", "RESCALE", "RESTRICT", "SMOOTH",
    "SOURCE", "SWIRL",
]  # fmt: skip

HEAD = r"""
__device__ int wrapped(int i, int n) { return i < 0 ? (i % n + n) % n : i >= n ? i % n : i; }
struct Cell {
    int at[3], extent[3], i, n;
    __device__ Cell(int d, int h, int w) {
        i = blockIdx.x * blockDim.x + threadIdx.x, n = d * h * w;
        extent[0] = w, extent[1] = h, extent[2] = d;
        at[0] = i % w, at[1] = i / w % h, at[2] = i / w / h;
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
__device__ float sample(
    const float *field, const float *where, const Cell &c, int k, int stagger, int periodic, float *low, float *high
) {
    int below[3];
    float part[3];
    for (int a = 0; a < k; ++a) {
        float at = stagger == a ? where[a] + 0.5f : where[a];
        if (!(periodic >> a & 1)) at = fminf(fmaxf(at, 0.0f), (float)(stagger == a ? c.extent[a] : c.extent[a] - 1));
        const float floor = floorf(at);
        below[a] = (int)floor, part[a] = at - floor;
    }
    float v[8];
    for (int n = 0; n < 1 << k; ++n) {
        int place = 0;
        for (int a = 0; a < k; ++a) place += wrapped(below[a] + (n >> a & 1), c.extent[a]) * c.step(a);
        v[n] = field[place];
        *low = n ? fminf(*low, v[n]) : v[n];
        *high = n ? fmaxf(*high, v[n]) : v[n];
    }
    for (int a = 0, many = 1 << k; a < k; ++a) {
        many >>= 1;
        for (int n = 0; n < many; ++n) v[n] = v[2 * n] + part[a] * (v[2 * n + 1] - v[2 * n]);
    }
    return v[0];
}

__device__ void trace(
    const float *u, const float *fluid, const Cell &c, float *where, int k, int stagger, float scale, int periodic,
    int solid
) {
    float start[3] = {0}, half[3], way[3], low, high;
    for (int a = 0; a < k; ++a) start[a] = c.at[a] - (stagger == a ? 0.5f : 0.0f);
    for (int a = 0; a < k; ++a)
        half[a] = start[a] - 0.5f * scale * sample(u + (long long)a * c.n, start, c, k, a, periodic, &low, &high);
    for (int a = 0; a < k; ++a) way[a] = -scale * sample(u + (long long)a * c.n, half, c, k, a, periodic, &low, &high);
    float part = 1.0f;
    if (solid) {
        float length = 0.0f;
        for (int a = 0; a < k; ++a) length += way[a] * way[a];
        const float shorter = 8.0f / fmaxf(sqrtf(length), 8.0f);
        for (int a = 0; a < k; ++a) way[a] *= shorter;
        part = 0.0f;
        for (int n = 1; n <= 16; ++n) {
            int place = 0;
            for (int a = 0; a < k; ++a) {
                const int at = (int)floorf(start[a] + n / 16.0f * way[a] + 0.5f);
                place += c.step(a) * (periodic >> a & 1 ? wrapped(at, c.extent[a]) : min(max(at, 0), c.extent[a] - 1));
            }
            if (!(fluid[place] > 0.0f)) break;
            part = n / 16.0f;
        }
    }
    for (int a = 0; a < k; ++a) where[a] = start[a] + way[a] * part;
}
"""
)

ADVECT = (
    TRACE
    + r"""
extern "C" __global__ void advect(
    const float *u, const float *fluid, const float *field, float *out, const float *dt, int k, int c, int d, int h,
    int w, float per, int stagger, int periodic, int solid
) {
    const Cell cell(d, h, w);
    if (cell.i >= cell.n) return;
    float where[3], low, high;
    for (int n = 0; n < c; ++n) {
        if (n == 0 || stagger) trace(u, fluid, cell, where, k, stagger ? n : -1, dt[0] * per, periodic, solid);
        const long long at = (long long)n * cell.n;
        out[at + cell.i] = sample(field + at, where, cell, k, stagger ? n : -1, periodic, &low, &high);
    }
}
"""
)

CORRECT = (
    TRACE
    + r"""
extern "C" __global__ void correct(
    const float *u, const float *fluid, const float *field, const float *ahead, const float *back, float *out,
    const float *dt, int k, int c, int d, int h, int w, float per, int stagger, int periodic, int solid
) {
    const Cell cell(d, h, w);
    if (cell.i >= cell.n) return;
    float where[3], low, high;
    for (int n = 0; n < c; ++n) {
        if (n == 0 || stagger) trace(u, fluid, cell, where, k, stagger ? n : -1, dt[0] * per, periodic, solid);
        const long long at = (long long)n * cell.n, i = at + cell.i;
        sample(field + at, where, cell, k, stagger ? n : -1, periodic, &low, &high);
        out[i] = fminf(fmaxf(ahead[i] + 0.5f * (field[i] - back[i]), low), high);
    }
}
"""
)

RESCALE = r"""
extern "C" __global__ void rescale(
    float *dye, const float *before, const float *after, const float *fluid, const float *dt, int c, int n, float fading
) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    for (int k = 0; k < c; ++k) {
        const float factor = before[k] * after[k] > 0.0f ? before[k] / after[k] : 1.0f;
        dye[(long long)k * n + i] *= fluid[i] * fminf(fmaxf(factor, 0.5f), 2.0f) / (1.0f + fading * dt[0]);
    }
}
"""

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
    if (cell.i >= cell.n) return;
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
    if (cell.i >= cell.n) return;
    float n[3] = {0};
    for (int a = 0; a < k; ++a) {
        const Cell next = cell.moved(a, 1), last = cell.moved(a, -1);
        const float ahead = size(vorticity, passes(open, next, a) ? next : cell);
        n[a] = 0.5f * (ahead - size(vorticity, passes(open, cell, a) ? last : cell));
    }
    const float length = sqrtf(n[0] * n[0] + n[1] * n[1] + n[2] * n[2]) + 1e-6f;
    for (int a = 0; a < k; ++a) {
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
    if (cell.i >= cell.n) return;
    for (int a = 0; a < k; ++a) {
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

SOURCE = (
    HEAD
    + r"""
__device__ float inside(const float *row, const float *fluid, const Cell &c, int k, float spacing) {
    float away = 0.0f;
    for (int a = 0; a < k; ++a) {
        const float by = (c.at[a] + 0.5f) * spacing - row[a];
        away += by * by;
    }
    return away < row[3] * row[3] ? fluid[c.i] : 0.0f;
}
extern "C" __global__ void source(
    float *u, const float *open, float *dye, const float *fluid, const float *rows, const float *dt, int k,
    int c, int d, int h, int w, int s, float spacing
) {
    const Cell cell(d, h, w);
    if (cell.i >= cell.n) return;
    for (int n = 0; n < s; ++n) {
        const float *row = rows + 9 * n;
        const float here = inside(row, fluid, cell, k, spacing);
        dye[(long long)(int)row[5] * cell.n + cell.i] += dt[0] * row[4] * here;
        for (int a = 0; a < k; ++a) {
            const float before = inside(row, fluid, cell.moved(a, -1), k, spacing);
            const long long i = (long long)a * cell.n + cell.i;
            u[i] += open[i] * dt[0] * 0.5f * row[6 + a] * (here + before);
        }
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
    if (cell.i >= cell.n || cell.colour(odd) != colour) return;
    const float rate = dt[0] * per;
    for (int a = 0; a < k; ++a) {
        const long long of = (long long)a * cell.n;
        float total = before[of + cell.i], weight = 1.0f;
        for (int b = 0; b < k; ++b) {
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
    if (c.i >= c.n) return;
    float total = 0.0f;
    for (int a = 0; a < k; ++a) total += u[(long long)a * c.n + c.up(a)] - u[(long long)a * c.n + c.i];
    out[c.i] = total;
}
"""
)

AROUND = (
    HEAD
    + r"""
__device__ float around(const float *p, const float *weights, const Cell &c, int k, float *weight) {
    float total = 0.0f;
    *weight = 0.0f;
    for (int a = 0; a < k; ++a) {
        const float *of = weights + (long long)a * c.n;
        const float above = of[c.up(a)], below = of[c.i];
        total += above * p[c.up(a)] + below * p[c.down(a)];
        *weight += above + below;
    }
    return total;
}
"""
)

SMOOTH = (
    AROUND
    + r"""
extern "C" __global__ void smooth(
    float *p, const float *b, const float *weights, int k, int d, int h, int w, int odd, int colour
) {
    const Cell c(d, h, w);
    if (c.i >= c.n || c.colour(odd) != colour) return;
    float weight;
    const float total = around(p, weights, c, k, &weight);
    if (weight > 0.0f) p[c.i] = (total - b[c.i]) / weight;
}
"""
)

RESTRICT = (
    AROUND
    + r"""
extern "C" __global__ void restricted(
    const float *p, const float *b, const float *weights, float *coarse, float *start, int k, int d, int h, int w,
    int dd, int hh, int ww
) {
    const Cell c(dd, hh, ww);
    if (c.i >= c.n) return;
    Cell fine(d, h, w);
    const int f[3] = {w == ww ? 1 : 2, h == hh ? 1 : 2, d == dd ? 1 : 2};
    float total = 0.0f;
    for (int n = 0; n < f[0] * f[1] * f[2]; ++n) {
        fine.at[0] = c.at[0] * f[0] + n % f[0];
        fine.at[1] = c.at[1] * f[1] + n / f[0] % f[1];
        fine.at[2] = c.at[2] * f[2] + n / f[0] / f[1];
        if (fine.at[0] >= w || fine.at[1] >= h || fine.at[2] >= d) continue;
        fine.i = (fine.at[2] * h + fine.at[1]) * w + fine.at[0];
        float weight;
        const float found = around(p, weights, fine, k, &weight);
        total += b[fine.i] - (found - weight * p[fine.i]);
    }
    coarse[c.i] = total;
    start[c.i] = 0.0f;
}
"""
)

PROLONG = (
    HEAD
    + r"""
extern "C" __global__ void prolong(
    float *p, const float *coarse, const float *weights, int k, int d, int h, int w, int dd, int hh, int ww
) {
    const Cell fine(d, h, w);
    if (fine.i >= fine.n) return;
    Cell c(dd, hh, ww);
    for (int a = 0; a < 3; ++a) c.at[a] = fine.extent[a] == c.extent[a] ? fine.at[a] : fine.at[a] / 2;
    c.i = (c.at[2] * hh + c.at[1]) * ww + c.at[0];
    float value = coarse[c.i];
    for (int a = 0; a < k; ++a) {
        if (fine.extent[a] == c.extent[a]) continue;
        const Cell other = c.moved(a, fine.at[a] & 1 ? 1 : -1);
        const float weight = weights[(long long)a * c.n + (fine.at[a] & 1 ? other.i : c.i)];
        if (weight > 0.0f) value += 0.25f * (coarse[other.i] - coarse[c.i]);
    }
    p[fine.i] += value;
}
"""
)

PROJECT = (
    HEAD
    + r"""
extern "C" __global__ void project(float *u, const float *p, const float *open, int k, int d, int h, int w) {
    const Cell c(d, h, w);
    if (c.i >= c.n) return;
    for (int a = 0; a < k; ++a) {
        const long long i = (long long)a * c.n + c.i;
        u[i] -= open[i] * (p[c.i] - p[c.down(a)]);
    }
}
"""
)
