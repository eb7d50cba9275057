// Random numbers that take more than one step: integers of a range, rejections, choices, orders, Sobol points.

#include "rng_philox.cuh"

// -- integers of a range ----------------------------------------------------------------------------------------------

// Lemire, "Fast random integer generation in an interval", ACM TOMACS 29 (2019).
__device__ inline Words4 element_block(u64 position, u32 turn, u32 half, u64 seed) {
    return philox_4x32(turn, half, (u32)position, (u32)(position >> 32) | 0x80000000u, seed);
}

__device__ inline u32 bounded(u32 w, u64 position, u32 threshold, const FillArgs& a) {
    u64 m = w * a.span;
    for (u32 turn = 0; (u32)m < threshold; ++turn) {
        const Words4 more = element_block(position, turn, 0, a.seed);
        for (int i = 0; i < 4 && (u32)m < threshold; ++i) m = more.w[i] * a.span;
    }
    return (u32)a.low + (u32)(m >> 32);
}
__device__ inline u64 bounded(u64 w, u64 position, u64 threshold, const FillArgs& a) {
    if (!a.span) return a.low + w;
    for (u32 turn = 0; w * a.span < threshold; ++turn) {
        const Words4 more = element_block(position, turn, 0, a.seed);
        for (int i = 0; i < 4 && w * a.span < threshold; i += 2) w = wide(more.w[i], more.w[i + 1]);
    }
    return a.low + __umul64hi(w, a.span);
}

template <typename S, typename T> __device__ void integers(const FillArgs& a) {
    const int K = sizeof(T) / 4;
    const u64 first = a.position / S::WORDS, last = (a.position + (u64)a.count * K - 1) / S::WORDS;
    const u64 end = a.position + (u64)a.count * K;
    const T threshold = K == 1 ? (T)((1ull << 32) % a.span) : a.span ? (T)((0 - a.span) % a.span) : 0;
    const u64 threads = (u64)gridDim.x * blockDim.x;
    for (u64 g = first + (u64)blockIdx.x * blockDim.x + threadIdx.x; g <= last; g += threads) {
        u32 w[S::WORDS];
        S::group(g, a.seed, w);
#pragma unroll
        for (int i = 0; i < S::WORDS; i += K) {
            const u64 at = g * S::WORDS + i;
            if (at < a.position || at >= end) continue;
            T word = w[i];
            if constexpr (K == 2) word = wide(w[i], w[i + 1]);
            ((T*)a.out)[(at - a.position) / K] = bounded(word, at, threshold, a);
        }
    }
}
extern "C" __global__ void philox_integers_4(const FillArgs a) { integers<Philox32, u32>(a); }
extern "C" __global__ void philox_integers_8(const FillArgs a) { integers<Philox32, u64>(a); }
extern "C" __global__ void philox64_integers_4(const FillArgs a) { integers<Philox64, u32>(a); }
extern "C" __global__ void philox64_integers_8(const FillArgs a) { integers<Philox64, u64>(a); }

// -- rejections: each element tries its own subsequence ---------------------------------------------------------------

__device__ inline void store(const FillArgs& a, i64 i, double x) {
    switch (a.dtype) {  // codes of callboard.core.dtype
        case 0: ((Half*)a.out)[i] = to((float)x, (Half*)0); break;
        case 1: ((Brain*)a.out)[i] = to((float)x, (Brain*)0); break;
        case 2: ((float*)a.out)[i] = (float)x; break;
        case 3: ((double*)a.out)[i] = x; break;
        case 8: case 12: ((u32*)a.out)[i] = (u32)(i64)x; break;
        default: ((i64*)a.out)[i] = (i64)x; break;
    }
}

__device__ double poisson(u64 position, const FillArgs& a) {
    const double rate = a.a;
    if (rate < 10.0) {
        const Words4 w = element_block(position, 0, 0, a.seed);
        const double u = unit_53(wide(w.w[0], w.w[1]));
        double term = exp(-rate), total = term;
        int k = 0;
        while (u >= total && k < 127) {
            ++k;
            term = __dmul_rn(term, rate / k);
            total = __dadd_rn(total, term);
        }
        return k;
    }
    const double log_rate = log(rate), b = 0.931 + 2.53 * sqrt(rate), c = -0.059 + 0.02483 * b;
    const double inverse_alpha = 1.1239 + 1.1328 / (b - 3.4), v_r = 0.9277 - 3.6224 / (b - 2.0);
    for (u32 turn = 0;; ++turn) {
        const Words4 w = element_block(position, turn, 0, a.seed);
        const double u = unit_53(wide(w.w[0], w.w[1])) - 0.5, v = unit_53(wide(w.w[2], w.w[3]));
        const double us = 0.5 - fabs(u);
        const double k = floor((2.0 * c / us + b) * u + rate + 0.43);
        if (us >= 0.07 && v <= v_r) return k;
        if (!(k >= 0) || (us < 0.013 && v > us)) continue;
        if (log(v) + log(inverse_alpha) - log(c / (us * us) + b) <= k * log_rate - rate - lgamma(k + 1.0)) return k;
    }
}

__device__ double log_gamma_number(u64 position, u32 half, double shape, u64 seed) {
    const double d = (shape >= 1.0 ? shape : shape + 1.0) - 1.0 / 3.0, c = 1.0 / sqrt(9.0 * d);
    for (u32 turn = 0;; turn += 2) {
        const Words4 w = element_block(position, turn, half, seed), o = element_block(position, turn + 1, half, seed);
        const double x = sqrt(-2.0 * log(above_53(wide(w.w[0], w.w[1])))) * cospi(2.0 * unit_53(wide(w.w[2], w.w[3])));
        const double root = 1.0 + c * x, v = root * root * root;
        if (v <= 0) continue;
        const double log_v = log(v);
        if (log(above_53(wide(o.w[0], o.w[1]))) < 0.5 * x * x + d - d * v + d * log_v) {
            const double found = log(d) + log_v;
            return shape < 1.0 ? found + log(above_53(wide(o.w[2], o.w[3]))) / shape : found;
        }
    }
}

#define ELEMENTS(NAME, NUMBER)                                                                            \
    extern "C" __global__ void NAME(const FillArgs a) {                                                   \
        const i64 threads = (i64)gridDim.x * blockDim.x;                                                  \
        for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < a.count; i += threads) {             \
            const u64 position = a.position + i;                                                          \
            store(a, i, NUMBER);                                                                          \
        }                                                                                                 \
    }
ELEMENTS(poisson_numbers, poisson(position, a))
ELEMENTS(gamma_numbers, exp(log_gamma_number(position, 0, a.a, a.seed)) * a.b)
ELEMENTS(beta_numbers, 1.0 / (1.0 + exp(log_gamma_number(position, 0x80000000u, a.b, a.seed) -
                                        log_gamma_number(position, 0, a.a, a.seed))))

// -- choices ----------------------------------------------------------------------------------------------------------

struct Verdict {  // of the weights
    u64 wrong;    // the first that is none; all ones if all are
    double value; // of that one
    double total;
};

// Running sums of the weights by one block, tile by tile.
template <typename T> __device__ void add_up(const T* weights, double* sums, Verdict* verdict, i64 size) {
    __shared__ double part[1024];
    __shared__ u64 wrong;
    const int t = threadIdx.x;
    if (t == 0) wrong = ~0ull;
    __syncthreads();
    double before = 0;
    for (i64 start = 0; start < size; start += 1024) {
        const i64 i = start + t;
        const double w = i < size ? (double)weights[i] : 0.0;
        if (!(w >= 0.0 && w < __longlong_as_double(0x7FF0000000000000ll))) atomicMin(&wrong, (u64)i);
        part[t] = w;
        __syncthreads();
        for (int step = 1; step < 1024; step <<= 1) {
            const double other = t >= step ? part[t - step] : 0.0;
            __syncthreads();
            part[t] += other;
            __syncthreads();
        }
        if (i < size) sums[i] = before + part[t];
        before += part[1023];
        __syncthreads();
    }
    if (t == 0) *verdict = {wrong, wrong < (u64)size ? (double)weights[wrong] : 0.0, before};
}
extern "C" __global__ void sums_f32(const float* weights, double* sums, Verdict* verdict, i64 size) {
    add_up(weights, sums, verdict, size);
}
extern "C" __global__ void sums_f64(const double* weights, double* sums, Verdict* verdict, i64 size) {
    add_up(weights, sums, verdict, size);
}

// -- orders: bitonic sort (Batcher 1968) of keys with their places, so that equal keys stay in order ------------------

struct Keyed {
    u64 key, place;
};
__device__ inline bool after(const Keyed& x, const Keyed& y) {
    return x.key > y.key || (x.key == y.key && x.place > y.place);
}
const int LOCAL = 2048;

extern "C" __global__ void order_begin(const u64* keys, Keyed* items, i64 count, i64 size) {
    const i64 threads = (i64)gridDim.x * blockDim.x;
    for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < size; i += threads)
        items[i] = {i < count ? keys[i] : ~0ull, (u64)i};
}
extern "C" __global__ void order_step(Keyed* items, i64 size, i64 k, i64 j) {
    const i64 threads = (i64)gridDim.x * blockDim.x;
    for (i64 t = (i64)blockIdx.x * blockDim.x + threadIdx.x; t < size / 2; t += threads) {
        const i64 i = (t / j) * 2 * j + t % j;
        const Keyed x = items[i], y = items[i + j];
        if (after(x, y) == ((i & k) == 0)) {
            items[i] = y;
            items[i + j] = x;
        }
    }
}
// All steps of runs from "first" to "last" that stay within 2048 items, of which a block has its own.
extern "C" __global__ void order_local(Keyed* items, i64 first, i64 last) {
    __shared__ Keyed mine[LOCAL];
    const i64 base = (i64)blockIdx.x * LOCAL;
    for (int i = threadIdx.x; i < LOCAL; i += blockDim.x) mine[i] = items[base + i];
    __syncthreads();
    for (i64 k = first; k <= last; k <<= 1)
        for (int j = (int)(k / 2 < LOCAL / 2 ? k / 2 : LOCAL / 2); j > 0; j >>= 1) {
            for (int t = threadIdx.x; t < LOCAL / 2; t += blockDim.x) {
                const int i = (t / j) * 2 * j + t % j;
                const Keyed x = mine[i], y = mine[i + j];
                if (after(x, y) == (((base + i) & k) == 0)) {
                    mine[i] = y;
                    mine[i + j] = x;
                }
            }
            __syncthreads();
        }
    for (int i = threadIdx.x; i < LOCAL; i += blockDim.x) items[base + i] = mine[i];
}
extern "C" __global__ void order_end(const Keyed* items, char* out, i64 count, int wide_items) {
    const i64 threads = (i64)gridDim.x * blockDim.x;
    for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += threads) {
        if (wide_items) ((u64*)out)[i] = items[i].place;
        else ((u32*)out)[i] = (u32)items[i].place;
    }
}

// -- Sobol points -----------------------------------------------------------------------------------------------------

// The table (points 1, 2, 4 ...: [bits][dimensions]) under a random lower triangular matrix, and the shift as one row
// more. Row r of a dimension is half of the Philox block (r / 2, 0, dimension, 0x40000000).
__device__ inline u64 matrix_row(int row, u32 dimension, u64 seed) {
    const Words4 w = philox_4x32(row >> 1, 0, dimension, 0x40000000u, seed);
    return row & 1 ? wide(w.w[2], w.w[3]) : wide(w.w[0], w.w[1]);
}
extern "C" __global__ void sobol_scramble(const u64* table, u64* out, int bits, i64 dimensions, u64 seed) {
    const u64 keep = bits == 64 ? ~0ull : (1ull << bits) - 1;
    const i64 threads = (i64)gridDim.x * blockDim.x;
    for (i64 e = (i64)blockIdx.x * blockDim.x + threadIdx.x; e < (bits + 1) * dimensions; e += threads) {
        const u32 dimension = (u32)(e % dimensions);
        if (e >= bits * dimensions) {
            out[e] = matrix_row(bits, dimension, seed) & keep;
            continue;
        }
        u64 found = 0;
        for (int row = 0; row < bits; ++row) {
            const u64 diagonal = 1ull << (bits - 1 - row);
            const u64 used = (matrix_row(row, dimension, seed) & keep & ~(2 * diagonal - 1)) | diagonal;
            if (__popcll(table[e] & used) & 1) found |= diagonal;
        }
        out[e] = found;
    }
}
// words: the table; a.low: whether its last row is a shift; a.shift: bits to the left, or to the right if negative.
template <typename T> __device__ void sobol_points(const FillArgs& a) {
    const u64* table = (const u64*)a.words;
    const i64 threads = (i64)gridDim.x * blockDim.x;
    for (i64 e = (i64)blockIdx.x * blockDim.x + threadIdx.x; e < a.count; e += threads) {
        const i64 dimension = e % a.size;
        u64 number = a.position + (u64)(e / a.size), x = a.low ? table[a.bits * a.size + dimension] : 0;
        for (; number; number &= number - 1) x ^= table[(__ffsll(number) - 1) * a.size + dimension];
        ((T*)a.out)[e] = (T)(a.shift < 0 ? x >> -a.shift : x << a.shift);
    }
}
extern "C" __global__ void sobol_4(const FillArgs a) { sobol_points<u32>(a); }
extern "C" __global__ void sobol_8(const FillArgs a) { sobol_points<u64>(a); }
