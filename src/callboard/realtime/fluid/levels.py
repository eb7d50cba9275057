"""Multigrid in CUDA: a colour, a level or all small levels at once; see :mod:`.plain` for what they compute."""

from callboard.realtime.fluid.cuda import HEAD

__all__ = [
    "ASCEND", "BOTTOM", "BOTTOM_CELLS", "BOTTOM_THREADS", "DESCEND", "HALO", "PROLONG", "RESTRICT", "SMOOTH", "TILE",
    "TILE_THREADS",
]  # fmt: skip

TILE = 32, 32
"""Cells of a block that goes over a level: columns and rows."""
HALO = 5
"""Cells around them: one for each of four colours, and one for the residual."""
TILE_THREADS = 320
"""As many as leave three pairs of cells for each."""
BOTTOM_CELLS, BOTTOM_THREADS = 1024, 256
"""Most cells of the largest level of those that one block goes over, and its threads."""

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
    unsigned live;  // a bit for each cell of the thread

    __device__ Area(int h, int w) : x0(blockIdx.x * WIDE - HALO), y0(blockIdx.y * HIGH - HALO), h(h), w(w), live(0) {}
    __device__ static int column(int n, int colour) { return n % HALF * 2 + (colour ^ (n / HALF & 1)); }
    __device__ static int near(int i, int n) {  // of an extent of 1, or of HALO at least; any cell farther out
        i = i < 0 ? i + n : i >= n ? i - n : i;
        return min(max(i, 0), n - 1);
    }
    __device__ bool inside(int n, int colour) const {  // of the block's cells, and of the grid
        const int x = column(n, colour), y = n / HALF;
        return n < PAIRS && x >= HALO && x < HALO + WIDE && y >= HALO && y < HALO + HIGH && x0 + x < w && y0 + y < h;
    }
    __device__ int cell(int n, int colour) const {
        return near(y0 + n / HALF, h) * w + near(x0 + column(n, colour), w);
    }

    // Values of all cells, by what `value(x, y)` gives, and their equations; those at the ends of the tile stay as they
    // are. Without branches: all loads are on their way before the first is used.
    template <typename Value> __device__ void load(
        float *red, float *black, const float *b, const float *weights, Value value
    ) {
        #pragma unroll
        for (int m = 0; m < EACH; ++m) {
            const int pair = threadIdx.x + m * THREADS, n = min(pair, PAIRS - 1), ly = n / HALF;
            #pragma unroll
            for (int colour = 0; colour < 2; ++colour) {
                const int lx = column(n, colour), x = near(x0 + lx, w), y = near(y0 + ly, h), i = y * w + x;
                const float left = weights[i], right = weights[x + 1 < w ? i + 1 : i - x];
                const float low = weights[h * w + i], high = weights[h * w + (y + 1 < h ? i + w : x)];
                const float weight = right + left + (high + low);
                const float part = weight > 0.0f ? __fdividef(1.0f, weight) : 0.0f;
                const bool after = colour ^ (ly & 1);  // the other cell of the pair is to the left
                of[m][colour] = {
                    (after ? left : right) * part, (after ? right : left) * part, high * part, low * part, b[i] * part,
                    weight
                };
                const bool ends = lx == 0 || lx == 2 * HALF - 1 || ly == 0 || ly == ROWS - 1;
                live |= (unsigned)(pair < PAIRS && !ends && weight > 0.0f) << (2 * m + colour);
                (colour ? black : red)[n] = value(x, y);
            }
        }
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
    area.load(red, black, b, weights, [&](int x, int y) { return p[y * w + x]; });
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
    const float *q, const float *coarse, const float *faces, int x, int y, int h, int w, int hh, int ww
) {  // a value and the coarse solution, linear between coarse cells with an open face
    const bool along = w != ww, down = h != hh;
    const int xx = along ? x / 2 : x, yy = down ? y / 2 : y, i = yy * ww + xx;
    const int beside = !along ? i : x & 1 ? (xx + 1 < ww ? i + 1 : i - xx) : xx ? i - 1 : i + ww - 1;
    const int under = !down ? i : y & 1 ? (yy + 1 < hh ? i + ww : xx) : yy ? i - ww : i + (hh - 1) * ww;
    const float first = faces[x & 1 ? beside : i], second = faces[hh * ww + (y & 1 ? under : i)];
    const float here = coarse[i], more = coarse[beside] - here, most = coarse[under] - here;
    const float value = here + (first > 0.0f ? 0.25f * more : 0.0f) + (second > 0.0f ? 0.25f * most : 0.0f);
    return q[y * w + x] + value;
}
extern "C" __global__ void __launch_bounds__(THREADS, 2) ascend(
    const float *q, const float *b, const float *weights, const float *coarse, const float *faces, float *p, int h,
    int w, int hh, int ww
) {
    __shared__ float red[PAIRS], black[PAIRS];
    Area area(h, w);
    area.load(red, black, b, weights, [&](int x, int y) { return raised(q, coarse, faces, x, y, h, w, hh, ww); });
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
#define CELLS {BOTTOM_CELLS}
#define THREADS {BOTTOM_THREADS}
#define EACH (CELLS / THREADS)
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

template <int K> struct Mine {  // the equation of a cell
    int up[K], down[K], colour;
    float above[K], below[K], rest, weight;
    __device__ Mine() : colour(-1) {}
    __device__ Mine(const Shape &s, int i, const float *weights, const float *b) : colour(0), weight(0.0f) {
        int step = 1, left = i;
        #pragma unroll
        for (int a = 0; a < K; ++a) {
            const int extent = s.extent[a], at = left % extent;
            left /= extent;
            up[a] = at + 1 < extent ? i + step : i - at * step, down[a] = at ? i - step : i + (extent - 1) * step;
            step *= extent;
            above[a] = weights[a * s.cells + up[a]], below[a] = weights[a * s.cells + i];
            weight += above[a] + below[a];
            colour += (s.odd >> a & 1) && at == extent - 1 ? 2 : at & 1;
        }
        const float part = weight > 0.0f ? __fdividef(1.0f, weight) : 0.0f;
        #pragma unroll
        for (int a = 0; a < K; ++a) above[a] *= part, below[a] *= part;
        rest = weight > 0.0f ? b[i] * part : b[i];
        colour %= s.odd ? 3 : 2;
    }
    __device__ float solved(const float *p) const {
        float total = -rest;
        #pragma unroll
        for (int a = 0; a < K; ++a) total += above[a] * p[up[a]] + below[a] * p[down[a]];
        return total;
    }
    __device__ float residual(const float *p, int i) const {
        return weight > 0.0f ? weight * (p[i] - solved(p)) : rest;
    }
};

template <int K> struct Level {  // the cells of a thread
    Mine<K> of[EACH];
    int cells;
    __device__ Level(const Shape &s, const float *weights, const float *b) : cells(s.cells) {
        #pragma unroll
        for (int m = 0; m < EACH; ++m) {
            const int i = threadIdx.x + m * THREADS;
            if (i < cells) of[m] = Mine<K>(s, i, weights, b);
        }
    }
    __device__ void sweep(float *p, int colour) const {
        #pragma unroll
        for (int m = 0; m < EACH; ++m) {
            if (m * THREADS >= cells) break;
            if (of[m].colour == colour && of[m].weight > 0.0f) p[threadIdx.x + m * THREADS] = of[m].solved(p);
        }
        __syncthreads();
    }
};

// All levels from this one on: one V-cycle.
template <int K> __device__ void cycle(
    float *values, float *given, float *rests, const float *faces, int d, int h, int w, int periodic
) {
    int levels = 1, first = 0;
    while (max(max(w, h), d) > 1 << levels) ++levels;
    for (int level = 0; level < levels; ++level) {
        const Shape s(d, h, w, level, periodic);
        float *value = values + first;
        const Level<K> mine(s, faces + K * first, given + first);
        const int colours = s.odd ? 3 : 2, last = level + 1 == levels;
        const int sweeps = last ? 2 * max(max(s.extent[0], s.extent[1]), s.extent[2]) : 2;
        for (int sweep = 0; sweep < sweeps; ++sweep)
            for (int colour = 0; colour < colours; ++colour) mine.sweep(value, colour);
        if (last) break;
        #pragma unroll
        for (int m = 0; m < EACH; ++m) {
            const int i = threadIdx.x + m * THREADS;
            if (i < s.cells) rests[i] = mine.of[m].residual(value, i);
        }
        __syncthreads();
        first += s.cells;
        const Shape c(d, h, w, level + 1, periodic);
        for (int t = threadIdx.x; t < c.cells; t += THREADS) {
            int place = 0, step = 1, left = t, steps[K], many[K];
            #pragma unroll
            for (int a = 0; a < K; ++a) {
                const int factor = s.extent[a] == c.extent[a] ? 1 : 2, at = left % c.extent[a] * factor;
                left /= c.extent[a], place += at * step, steps[a] = step, step *= s.extent[a];
                many[a] = min(factor, s.extent[a] - at);
            }
            float total = 0.0f;
            #pragma unroll
            for (int m = 0; m < 1 << K; ++m) {
                int one = place;
                bool there = true;
                #pragma unroll
                for (int a = 0; a < K; ++a) there = there && (m >> a & 1) < many[a], one += (m >> a & 1) * steps[a];
                if (there) total += rests[one];
            }
            given[first + t] = total, values[first + t] = 0.0f;
        }
        __syncthreads();
    }
    for (int level = levels - 2; level >= 0; --level) {
        const Shape s(d, h, w, level, periodic), c(d, h, w, level + 1, periodic);
        const float *coarse = values + first, *face = faces + K * first;
        first -= s.cells;
        float *value = values + first;
        const Level<K> mine(s, faces + K * first, given + first);
        for (int t = threadIdx.x; t < s.cells; t += THREADS) {
            int i = 0, step = 1, left = t, odd[K], beside[K];
            #pragma unroll
            for (int a = 0; a < K; ++a) {
                const bool halved = s.extent[a] != c.extent[a];
                const int fine = left % s.extent[a], at = halved ? fine / 2 : fine, extent = c.extent[a];
                const int to = !halved ? at : fine & 1 ? (at + 1 < extent ? at + 1 : 0) : at ? at - 1 : extent - 1;
                left /= s.extent[a], odd[a] = fine & 1, beside[a] = (to - at) * step, i += at * step, step *= extent;
            }
            const float here = coarse[i];
            float more = here;
            #pragma unroll
            for (int a = 0; a < K; ++a) {
                const int next = i + beside[a];
                if (face[a * c.cells + (odd[a] ? next : i)] > 0.0f) more += 0.25f * (coarse[next] - here);
            }
            value[t] += more;
        }
        __syncthreads();
        for (int sweep = 0; sweep < 2; ++sweep)
            for (int colour = s.odd ? 2 : 1; colour >= 0; --colour) mine.sweep(value, colour);
    }
}

extern "C" __global__ void __launch_bounds__(THREADS) bottom(
    float *p, const float *b, const float *weights, int k, int d, int h, int w, int n, int periodic
) {
    __shared__ float values[ROOM], given[ROOM], rests[CELLS], faces[3 * ROOM];
    for (int i = threadIdx.x; i < n; i += THREADS) faces[i] = weights[i];
    for (int i = threadIdx.x; i < d * h * w; i += THREADS) values[i] = p[i], given[i] = b[i];
    __syncthreads();
    if (k == 2) cycle<2>(values, given, rests, faces, d, h, w, periodic);
    else cycle<3>(values, given, rests, faces, d, h, w, periodic);
    for (int i = threadIdx.x; i < d * h * w; i += THREADS) p[i] = values[i];
}
"""
)
