"""Multigrid in CUDA: a colour, a level or all small levels at once; see :mod:`.plain` for what they compute."""

from callboard.realtime.fluid.cuda import HEAD

__all__ = [
    "ASCEND", "BOTTOM", "BOTTOM_THREADS", "DESCEND", "PROLONG", "RESTRICT", "SMOOTH", "TILE", "TILE_THREADS",
]  # fmt: skip

TILE = 32, 32
"""Cells of a block that goes over a level: columns and rows."""
HALO = 5
"""Cells around them: one for each of four colours, and one for the residual."""
TILE_THREADS = 320
"""As many as leave three pairs of cells for each."""
BOTTOM_THREADS = 1024
"""A thread for each cell of the largest level of those that one block goes over."""

AROUND = (
    HEAD
    + r"""
__device__ float around(const float *p, const float *weights, const Cell &c, int k, float *weight) {
    float total = 0.0f;
    *weight = 0.0f;
    AXES(a) {
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
    if (!c.there || c.colour(odd) != colour) return;
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
    if (!c.there) return;
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
    if (!fine.there) return;
    Cell c(dd, hh, ww);
    for (int a = 0; a < 3; ++a) c.at[a] = fine.extent[a] == c.extent[a] ? fine.at[a] : fine.at[a] / 2;
    c.i = (c.at[2] * hh + c.at[1]) * ww + c.at[0];
    float value = coarse[c.i];
    AXES(a) {
        if (fine.extent[a] == c.extent[a]) continue;
        const Cell other = c.moved(a, fine.at[a] & 1 ? 1 : -1);
        const float weight = weights[(long long)a * c.n + (fine.at[a] & 1 ? other.i : c.i)];
        if (weight > 0.0f) value += 0.25f * (coarse[other.i] - coarse[c.i]);
    }
    p[fine.i] += value;
}
"""
)


AREA = (
    HEAD
    + f"""
#define WIDE {TILE[0]}
#define HIGH {TILE[1]}
#define HALO {HALO}
#define THREADS {TILE_THREADS}
"""
    + r"""
// A tile of a level in a plane: the values of each colour by themselves, so that neighbouring threads read neighbouring
// words. Pair n has a cell of both colours; of colour q, the column 2 * i + (q ^ (row & 1)).
constexpr int HALF = WIDE / 2 + HALO, ROWS = HIGH + 2 * HALO, PAIRS = HALF * ROWS;
constexpr int EACH = (PAIRS + THREADS - 1) / THREADS;

struct Equation { float same, other, up, down, rest, weight; };

struct Area {
    int x0, y0, h, w;
    Equation of[EACH][2];
    unsigned live;

    __device__ Area(int h, int w) : x0(blockIdx.x * WIDE - HALO), y0(blockIdx.y * HIGH - HALO), h(h), w(w), live(0) {}
    __device__ int column(int n, int colour) const { return n % HALF * 2 + (colour ^ (n / HALF & 1)); }
    __device__ bool inside(int n, int colour) const {  // of the block's cells, and of the grid
        const int x = column(n, colour), y = n / HALF;
        return x >= HALO && x < HALO + WIDE && y >= HALO && y < HALO + HIGH && x0 + x < w && y0 + y < h;
    }
    __device__ int cell(int n, int colour) const {
        return wrapped(y0 + n / HALF, h) * w + wrapped(x0 + column(n, colour), w);
    }
    template <int COLOUR> __device__ void load(
        int m, float *values, float value, const float *b, const float *weights
    ) {  // a cell's value and equation; those at the ends of the tile stay as they are
        const int n = threadIdx.x + m * THREADS, lx = column(n, COLOUR), ly = n / HALF;
        values[n] = value;
        if (lx == 0 || lx == 2 * HALF - 1 || ly == 0 || ly == ROWS - 1) return;
        const int x = wrapped(x0 + lx, w), y = wrapped(y0 + ly, h), i = y * w + x;
        const float left = weights[i], right = weights[x + 1 < w ? i + 1 : i - x];
        const float low = weights[h * w + i], high = weights[h * w + (y + 1 < h ? i + w : x)];
        const float weight = right + left + (high + low);
        if (!(weight > 0.0f)) return;
        const float part = 1.0f / weight;
        const bool after = COLOUR ^ (ly & 1);  // the other cell of the pair is to the left
        of[m][COLOUR] = {
            (after ? left : right) * part, (after ? right : left) * part, high * part, low * part, b[i] * part, weight
        };
        live |= 1u << (2 * m + COLOUR);
    }
    template <int COLOUR> __device__ float solved(int m, const float *others) const {
        const int n = threadIdx.x + m * THREADS;
        const Equation &e = of[m][COLOUR];
        const int next = n + (COLOUR ^ (n / HALF & 1) ? 1 : -1);
        const float beside = e.same * others[n] + e.other * others[next];
        return beside + (e.up * others[n + HALF] + e.down * others[n - HALF]) - e.rest;
    }
    template <int COLOUR> __device__ void sweep(float *values, const float *others) const {
        __syncthreads();
        #pragma unroll
        for (int m = 0; m < EACH; ++m)
            if (live >> (2 * m + COLOUR) & 1) values[threadIdx.x + m * THREADS] = solved<COLOUR>(m, others);
    }
};
"""
)

DESCEND = (
    AREA
    + r"""
extern "C" __global__ void __launch_bounds__(THREADS, 2) descend(
    const float *p, const float *b, const float *weights, float *q, float *coarse, float *start, int h, int w, int hh,
    int ww
) {
    __shared__ float red[PAIRS], black[PAIRS], rest[2][PAIRS];
    Area area(h, w);
    #pragma unroll
    for (int m = 0; m < EACH; ++m) {
        const int n = threadIdx.x + m * THREADS;
        if (n >= PAIRS) continue;
        area.load<0>(m, red, p[area.cell(n, 0)], b, weights);
        area.load<1>(m, black, p[area.cell(n, 1)], b, weights);
    }
    for (int sweep = 0; sweep < 2; ++sweep) {
        area.sweep<0>(red, black);
        area.sweep<1>(black, red);
    }
    __syncthreads();
    #pragma unroll
    for (int m = 0; m < EACH; ++m) {
        const int n = threadIdx.x + m * THREADS;
        #pragma unroll
        for (int colour = 0; colour < 2; ++colour) {
            if (n >= PAIRS) continue;
            rest[colour][n] = 0.0f;
            if (!area.inside(n, colour)) continue;
            const float value = colour ? black[n] : red[n];
            const int i = area.cell(n, colour);
            q[i] = value;
            if (!(area.live >> (2 * m + colour) & 1)) rest[colour][n] = b[i];
            else if (colour) rest[1][n] = area.of[m][1].weight * (value - area.solved<1>(m, red));
            else rest[0][n] = area.of[m][0].weight * (value - area.solved<0>(m, black));
        }
    }
    __syncthreads();
    const int fx = w == ww ? 1 : 2, fy = h == hh ? 1 : 2, across = WIDE / fx;
    for (int n = threadIdx.x; n < across * (HIGH / fy); n += THREADS) {
        const int cx = n % across, cy = n / across, x = blockIdx.x * across + cx, y = blockIdx.y * (HIGH / fy) + cy;
        if (x >= ww || y >= hh) continue;
        float total = 0.0f;
        for (int j = 0; j < fy; ++j)
            for (int i = 0; i < fx; ++i) {
                const int lx = HALO + cx * fx + i, ly = HALO + cy * fy + j;
                total += rest[(lx + ly) & 1][ly * HALF + lx / 2];
            }
        coarse[y * ww + x] = total;
        start[y * ww + x] = 0.0f;
    }
}
"""
)

ASCEND = (
    AREA
    + r"""
__device__ float raised(
    const float *q, const float *coarse, const float *faces, int at, int h, int w, int hh, int ww
) {  // a value and the coarse solution, linear between coarse cells with an open face
    const int x = at % w, y = at / w, xx = w == ww ? x : x / 2, yy = h == hh ? y : y / 2, i = yy * ww + xx;
    const float here = coarse[i];
    float value = here;
    if (w != ww) {
        const int next = x & 1 ? (xx + 1 < ww ? i + 1 : i - xx) : xx ? i - 1 : i + ww - 1;
        if (faces[x & 1 ? next : i] > 0.0f) value += 0.25f * (coarse[next] - here);
    }
    if (h != hh) {
        const int next = y & 1 ? (yy + 1 < hh ? i + ww : xx) : yy ? i - ww : i + (hh - 1) * ww;
        if (faces[hh * ww + (y & 1 ? next : i)] > 0.0f) value += 0.25f * (coarse[next] - here);
    }
    return q[at] + value;
}
extern "C" __global__ void __launch_bounds__(THREADS, 2) ascend(
    const float *q, const float *b, const float *weights, const float *coarse, const float *faces, float *p, int h,
    int w, int hh, int ww
) {
    __shared__ float red[PAIRS], black[PAIRS];
    Area area(h, w);
    #pragma unroll
    for (int m = 0; m < EACH; ++m) {
        const int n = threadIdx.x + m * THREADS;
        if (n >= PAIRS) continue;
        area.load<0>(m, red, raised(q, coarse, faces, area.cell(n, 0), h, w, hh, ww), b, weights);
        area.load<1>(m, black, raised(q, coarse, faces, area.cell(n, 1), h, w, hh, ww), b, weights);
    }
    for (int sweep = 0; sweep < 2; ++sweep) {
        area.sweep<1>(black, red);
        area.sweep<0>(red, black);
    }
    #pragma unroll
    for (int m = 0; m < EACH; ++m) {
        const int n = threadIdx.x + m * THREADS;
        if (n >= PAIRS) continue;
        if (area.inside(n, 0)) p[area.cell(n, 0)] = red[n];
        if (area.inside(n, 1)) p[area.cell(n, 1)] = black[n];
    }
}
"""
)

BOTTOM = (
    HEAD
    + f"""
#define CELLS {BOTTOM_THREADS}
"""
    + r"""
#define ROOM (2 * CELLS + 32)
struct Shape {
    int extent[3], cells, odd;
    __device__ Shape(int d, int h, int w, int level, int periodic) {
        const int whole[3] = {w, h, d};
        cells = 1, odd = 0;
        for (int a = 0; a < 3; ++a) {
            extent[a] = (whole[a] + (1 << level) - 1) >> level, cells *= extent[a];
            if ((periodic >> a & 1) && extent[a] > 1 && (extent[a] & 1)) odd |= 1 << a;
        }
    }
};

struct Mine {  // the equation of a thread's cell
    int at[3], up[3], down[3], colour;
    float above[3], below[3], rest, weight;
    __device__ Mine(const Shape &s, int k, const float *weights, const float *b) {
        const int i = threadIdx.x < s.cells ? threadIdx.x : 0;
        at[0] = i % s.extent[0], at[1] = i / s.extent[0] % s.extent[1], at[2] = i / s.extent[0] / s.extent[1];
        colour = weight = 0;
        int step = 1;
        for (int a = 0; a < 3; ++a) {
            up[a] = at[a] + 1 < s.extent[a] ? i + step : i - at[a] * step;
            down[a] = at[a] ? i - step : i + (s.extent[a] - 1) * step;
            step *= s.extent[a];
            above[a] = a < k ? weights[a * s.cells + up[a]] : 0.0f, below[a] = a < k ? weights[a * s.cells + i] : 0.0f;
            weight += above[a] + below[a];
            colour += (s.odd >> a & 1) && at[a] == s.extent[a] - 1 ? 2 : at[a] & 1;
        }
        colour = threadIdx.x < s.cells ? colour % (s.odd ? 3 : 2) : -1;
        rest = b[i];
    }
    __device__ float around(const float *p) const {
        float total = 0.0f;
        #pragma unroll
        for (int a = 0; a < 3; ++a) total += above[a] * p[up[a]] + below[a] * p[down[a]];
        return total;
    }
    __device__ void sweep(float *p, int mine) const {
        if (colour == mine && weight > 0.0f) p[threadIdx.x] = (around(p) - rest) / weight;
        __syncthreads();
    }
};

// All levels from this one on: one V-cycle.
extern "C" __global__ void bottom(
    float *p, const float *b, const float *weights, int k, int d, int h, int w, int n, int periodic
) {
    __shared__ float values[ROOM], given[ROOM], rests[CELLS], faces[3 * ROOM];
    const int t = threadIdx.x;
    for (int i = t; i < n; i += blockDim.x) faces[i] = weights[i];
    if (t < d * h * w) values[t] = p[t], given[t] = b[t];
    __syncthreads();
    int levels = 1;
    while (max(max(w, h), d) > 1 << levels) ++levels;
    int first = 0;
    for (int level = 0; level < levels; ++level) {
        const Shape s(d, h, w, level, periodic);
        float *value = values + first;
        const Mine mine(s, k, faces + k * first, given + first);
        const int colours = s.odd ? 3 : 2, last = level + 1 == levels;
        const int sweeps = last ? 2 * max(max(s.extent[0], s.extent[1]), s.extent[2]) : 2;
        for (int sweep = 0; sweep < sweeps; ++sweep)
            for (int colour = 0; colour < colours; ++colour) mine.sweep(value, colour);
        if (last) break;
        if (t < s.cells) rests[t] = mine.rest - (mine.around(value) - mine.weight * value[t]);
        __syncthreads();
        first += s.cells;
        const Shape c(d, h, w, level + 1, periodic);
        if (t < c.cells) {
            const int at[3] = {t % c.extent[0], t / c.extent[0] % c.extent[1], t / c.extent[0] / c.extent[1]};
            float total = 0.0f;
            for (int m = 0; m < 8; ++m) {
                int place = 0, step = 1;
                bool there = true;
                for (int a = 0; a < 3; ++a) {
                    const int factor = s.extent[a] == c.extent[a] ? 1 : 2, one = at[a] * factor + (m >> a & 1);
                    there = there && (m >> a & 1) < factor && one < s.extent[a];
                    place += one * step, step *= s.extent[a];
                }
                if (there) total += rests[place];
            }
            given[first + t] = total, values[first + t] = 0.0f;
        }
        __syncthreads();
    }
    for (int level = levels - 2; level >= 0; --level) {
        const Shape s(d, h, w, level, periodic), c(d, h, w, level + 1, periodic);
        const float *coarse = values + first, *face = faces + k * first;
        first -= s.cells;
        float *value = values + first;
        const Mine mine(s, k, faces + k * first, given + first);
        if (t < s.cells) {
            int i = 0, step = 1, steps[3], at[3];
            for (int a = 0; a < 3; ++a) {
                at[a] = s.extent[a] == c.extent[a] ? mine.at[a] : mine.at[a] / 2;
                steps[a] = step, i += at[a] * step, step *= c.extent[a];
            }
            const float here = coarse[i];
            float more = here;
            AXES(a) {
                if (s.extent[a] == c.extent[a]) continue;
                const int up = mine.at[a] & 1, to = wrapped(at[a] + (up ? 1 : -1), c.extent[a]);
                const int next = i + (to - at[a]) * steps[a];
                if (face[a * c.cells + (up ? next : i)] > 0.0f) more += 0.25f * (coarse[next] - here);
            }
            value[t] += more;
        }
        __syncthreads();
        for (int sweep = 0; sweep < 2; ++sweep)
            for (int colour = s.odd ? 2 : 1; colour >= 0; --colour) mine.sweep(value, colour);
    }
    if (t < d * h * w) p[t] = values[t];
}
"""
)
