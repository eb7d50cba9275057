// Parallel primitives that look at the elements: extremes and where they are, searches, histograms.
// None of CUDA's headers: NVRTC finds them only where a toolkit is installed.

#include "cub.cuh"

const int THREADS = 256;

// -- keys --------------------------------------------------------------------------------------------------------------

__device__ Half one_nan(Half x) { return (x.bits & 0x7fff) > 0x7c00 ? Half{0x7e00} : x; }
__device__ Brain one_nan(Brain x) { return (x.bits & 0x7fff) > 0x7f80 ? Brain{0x7fc0} : x; }
__device__ float one_nan(float x) { return x != x ? __uint_as_float(0x7fc00000) : x; }
__device__ double one_nan(double x) { return x != x ? __longlong_as_double(0x7ff8000000000000ll) : x; }
template <typename I>
__device__ I one_nan(I x) {
    return x;
}

// Radix sorts go by the bits: every NaN gets those that are behind all others.
template <typename T, typename A>
__device__ void canonical(const CubArgs& p) {
    for (i64 i = thread(); i < p.n; i += threads()) ((T*)p.out)[i] = one_nan(((const T*)p.a)[i]);
}

// From what is computed in.
template <typename T, typename A>
__device__ void rounded(const CubArgs& p) {
    for (i64 i = thread(); i < p.n; i += threads()) ((T*)p.out)[i] = narrow<T, A>(((const A*)p.a)[i]);
}

// -- sorted by the bits: negative NaNs are at one end, positive ones at the other ----------------------------------------
// They belong together at the end of the positive ones (least: in front), in the order in which they were given (a, and
// b with values of k bytes). out and second are sorted, c has room for both (the values from `room` bytes on), d a state.

__device__ u64 infinity(Half) { return 0x7c00; }
__device__ u64 infinity(Brain) { return 0x7f80; }
__device__ u64 infinity(float) { return 0x7f800000; }
__device__ u64 infinity(double) { return 0x7ff0000000000000ull; }
__device__ u64 bits(Half x) { return x.bits; }
__device__ u64 bits(Brain x) { return x.bits; }
__device__ u64 bits(float x) { return __float_as_uint(x); }
__device__ u64 bits(double x) { return (u64)__double_as_longlong(x); }

template <typename T>
__device__ bool is_nan(T x) {
    return (bits(x) & ~(1ull << (8 * sizeof(T) - 1))) > infinity(x);
}

struct NanState {
    i64 stray;   // negative ones
    i64 placed;  // positive ones
    i64 again;   // whether they have to be taken from the given keys
    i64 parts[1];  // m of them: how many NaNs each part of the given keys has
};

template <typename T>
__device__ i64 nans_at_an_end(const T* line, i64 n, bool front, u64 negative) {
    i64 low = 0;
    for (i64 left = n; left > 0;) {
        const i64 half = low ? left >> 1 : 0;  // in most lines there is none: so the end first
        const T x = line[front ? low + half : n - 1 - low - half];
        if (is_nan(x) && bits(x) >> (8 * sizeof(T) - 1) == negative) {
            low += half + 1;
            left -= half + 1;
        } else {
            left = half;
        }
    }
    return low;
}

template <typename T, typename A>
__device__ void nans_looked_for(const CubArgs& p) {
    if (thread()) return;
    NanState* state = (NanState*)p.d;
    const T* line = (const T*)p.out;
    const i64 placed = nans_at_an_end<T>(line, p.n, p.least, 0), first = p.least ? 0 : p.n - placed;
    state->placed = placed;
    state->stray = nans_at_an_end<T>(line, p.n, !p.least, 1);
    state->again = state->stray || (placed > 1 && bits(line[first]) != bits(line[first + placed - 1]));
}

__device__ i64 part_of(const CubArgs& p) { return (p.n + p.m - 1) / p.m; }

template <typename T, typename A>
__device__ void nans_counted(const CubArgs& p) {
    NanState* state = (NanState*)p.d;
    if (!state->again) return;
    __shared__ u32 found;
    if (!threadIdx.x) found = 0;
    __syncthreads();
    const i64 from = blockIdx.x * part_of(p), to = min(from + part_of(p), p.n);
    u32 own = 0;
    for (i64 i = from + threadIdx.x; i < to; i += THREADS) own += is_nan(((const T*)p.a)[i]);
    atomicAdd(&found, own);
    __syncthreads();
    if (!threadIdx.x) state->parts[blockIdx.x] = found;
}

__device__ void move_value(void* out, i64 to, const void* in, i64 from, i64 size) {
    switch (size) {
        case 1: ((u8*)out)[to] = ((const u8*)in)[from]; break;
        case 2: ((u16*)out)[to] = ((const u16*)in)[from]; break;
        case 4: ((u32*)out)[to] = ((const u32*)in)[from]; break;
        case 8: ((u64*)out)[to] = ((const u64*)in)[from];
    }
}

template <typename T, typename A>
__device__ void nans_left_out(const CubArgs& p) {
    const NanState* state = (const NanState*)p.d;
    if (!state->stray) return;
    const i64 from = p.least ? state->placed : state->stray, numbers = p.n - state->placed - state->stray;
    for (i64 i = thread(); i < numbers; i += threads()) {
        ((T*)p.c)[i] = ((const T*)p.out)[from + i];
        move_value((u8*)p.c + p.room, i, p.second, from + i, p.k);
    }
}

template <typename T, typename A>
__device__ void nans_put(const CubArgs& p) {
    const NanState* state = (const NanState*)p.d;
    if (!state->again) return;
    const i64 nans = state->placed + state->stray, numbers = p.n - nans;
    if (state->stray) {
        const i64 to = p.least ? nans : 0;
        for (i64 i = thread(); i < numbers; i += threads()) {
            ((T*)p.out)[to + i] = ((const T*)p.c)[i];
            move_value(p.second, to + i, (const u8*)p.c + p.room, i, p.k);
        }
    }
    __shared__ u32 votes[THREADS / 32];
    const i64 from = blockIdx.x * part_of(p), to = min(from + part_of(p), p.n);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    i64 place = p.least ? 0 : numbers;
    for (i64 part = 0; part < blockIdx.x; part++) place += state->parts[part];
    for (i64 tile = from; tile < to; tile += THREADS) {
        const i64 i = tile + threadIdx.x;
        const T x = i < to ? ((const T*)p.a)[i] : T{};
        const u32 mine = __ballot_sync(~0u, is_nan(x));
        if (!lane) votes[warp] = mine;
        __syncthreads();
        i64 before = place;
        for (int w = 0; w < THREADS / 32; w++) {
            if (w < warp) before += __popc(votes[w]);
            place += __popc(votes[w]);
        }
        if (is_nan(x)) {
            before += __popc(mine & ((1u << lane) - 1));
            ((T*)p.out)[before] = x;
            move_value(p.second, before, p.b, i, p.k);
        }
        __syncthreads();
    }
}

// -- extremes ----------------------------------------------------------------------------------------------------------

// Whether element i is rather the extreme than element j: NaN first, of equal ones the lower index; none is -1.
template <typename A>
__device__ bool rather(A x, i64 i, A y, i64 j, bool least) {
    if (i < 0 || j < 0) return j < 0 && i >= 0;
    const bool odd = x != x, other = y != y;
    if (odd || other) return odd && (!other || i < j);
    if (x == y) return i < j;
    return least ? x < y : x > y;
}

// The extreme of a block's threads, in thread 0.
template <typename A>
__device__ void gather_extreme(A& value, i64& at, bool least) {
    __shared__ A values[THREADS];
    __shared__ i64 places[THREADS];
    const int t = threadIdx.x;
    values[t] = value;
    places[t] = at;
    for (int step = THREADS / 2; step; step >>= 1) {
        __syncthreads();
        if (t < step && rather<A>(values[t + step], places[t + step], values[t], places[t], least)) {
            values[t] = values[t + step];
            places[t] = places[t + step];
        }
    }
    __syncthreads();
    at = places[0];
}

// m parts of each row of n elements; in out the index of each part's extreme.
template <typename T, typename A>
__device__ void extreme_parts(const CubArgs& p) {
    const i64 row = blockIdx.x / p.m, part = blockIdx.x % p.m;
    const T* x = (const T*)p.a + row * p.n;
    A best{};
    i64 at = -1;
    for (i64 i = part * THREADS + threadIdx.x; i < p.n; i += p.m * THREADS) {
        const A value = widen<A, T>(x[i]);
        if (rather<A>(value, i, best, at, p.least)) {
            best = value;
            at = i;
        }
    }
    gather_extreme<A>(best, at, p.least);
    if (!threadIdx.x) ((i64*)p.out)[blockIdx.x] = at;
}

// The extreme of m such parts.
template <typename T, typename A>
__device__ void extreme(const CubArgs& p) {
    const i64 row = blockIdx.x;
    const T* x = (const T*)p.a + row * p.n;
    const i64* parts = (const i64*)p.b + row * p.m;
    A best{};
    i64 at = -1;
    for (i64 j = threadIdx.x; j < p.m; j += THREADS) {
        const i64 i = parts[j];
        const A value = i < 0 ? A{} : widen<A, T>(x[i]);
        if (rather<A>(value, i, best, at, p.least)) {
            best = value;
            at = i;
        }
    }
    gather_extreme<A>(best, at, p.least);
    if (!threadIdx.x) ((i64*)p.out)[row] = at;
}

// -- searches ----------------------------------------------------------------------------------------------------------

template <typename T, typename A>
__device__ void lower(const CubArgs& p) {
    for (i64 i = thread(); i < p.m; i += threads()) {
        ((i64*)p.out)[i] = bound_of<T, A, false>((const T*)p.a, p.n, widen<A, T>(((const T*)p.b)[i]));
    }
}

template <typename T, typename A>
__device__ void upper(const CubArgs& p) {
    for (i64 i = thread(); i < p.m; i += threads()) {
        ((i64*)p.out)[i] = bound_of<T, A, true>((const T*)p.a, p.n, widen<A, T>(((const T*)p.b)[i]));
    }
}

// -- histograms: n samples, of k channels one after the other, the first m of which are counted --------------------------

const int AHEAD = 8;  // samples that a thread loads before it counts them; 4 and 16 take longer

template <typename T, typename A>
struct Even {
    static __device__ int bin(const CubArgs& p, T x) {
        const double value = (double)widen<A, T>(x);
        if (!(value >= p.lower && value < p.upper)) return -1;
        const int at = __double2int_rz(__dmul_rn(__dsub_rn(value, p.lower), p.scale));  // not negative: rounded down
        return at < p.bins ? at : p.bins - 1;
    }
};

template <typename T, typename A>
struct Ranged {
    static __device__ int bin(const CubArgs& p, T x) {
        const A value = widen<A, T>(x);
        if (value != value) return -1;
        const i64 at = bound_of<T, A, true>((const T*)p.b, p.bins + 1, value) - 1;
        return at < p.bins ? (int)at : -1;
    }
};

// Counts sample i, in counters of the block or in the result.
template <typename T, typename Rule>
__device__ __forceinline__ void tally(const CubArgs& p, u32* counters, i64 i, T x) {
    const i64 channel = p.k == 1 ? 0 : i % p.k;
    if (channel >= p.m) return;
    const int bin = Rule::bin(p, x);
    if (bin < 0) return;
    if (p.shared) {
        atomicAdd(counters + channel * p.bins + bin, 1u);
    } else {
        atomicAdd((u64*)p.out + channel * p.bins + bin, (u64)1);
    }
}

// In counters of the block, where they fit, and from there into the result; it has been cleared.
template <typename T, typename Rule>
__device__ void count(const CubArgs& p) {
    extern __shared__ u32 counters[];
    const i64 total = p.m * p.bins;
    if (p.shared) {
        for (i64 i = threadIdx.x; i < total; i += blockDim.x) counters[i] = 0;
        __syncthreads();
    }
    const T* samples = (const T*)p.a;
    const i64 step = threads();
    i64 first = thread();
    for (; first + (AHEAD - 1) * step < p.n; first += AHEAD * step) {
        T x[AHEAD];
#pragma unroll
        for (int j = 0; j < AHEAD; j++) x[j] = samples[first + j * step];
#pragma unroll
        for (int j = 0; j < AHEAD; j++) tally<T, Rule>(p, counters, first + j * step, x[j]);
    }
    for (; first < p.n; first += step) tally<T, Rule>(p, counters, first, samples[first]);
    if (p.shared) {
        __syncthreads();
        for (i64 i = threadIdx.x; i < total; i += blockDim.x) {
            if (counters[i]) atomicAdd((u64*)p.out + i, (u64)counters[i]);
        }
    }
}

template <typename T, typename A>
__device__ void even(const CubArgs& p) {
    count<T, Even<T, A>>(p);
}

template <typename T, typename A>
__device__ void ranged(const CubArgs& p) {
    count<T, Ranged<T, A>>(p);
}

#define KERNEL(name, work, T, A) \
    extern "C" __global__ void work##_##name(const __grid_constant__ CubArgs p) { work<T, A>(p); }
// As many blocks as are launched for a count (COUNTING_BLOCKS) run at once: it ends with the last one.
#define COUNTING(name, work, T, A)                             \
    extern "C" __global__ void __launch_bounds__(256, 8) work##_##name(const __grid_constant__ CubArgs p) { work<T, A>(p); }
#define KERNELS(name, T, A)          \
    KERNEL(name, canonical, T, A)    \
    KERNEL(name, rounded, T, A)      \
    KERNEL(name, extreme_parts, T, A) \
    KERNEL(name, extreme, T, A)      \
    KERNEL(name, lower, T, A)        \
    KERNEL(name, upper, T, A)        \
    COUNTING(name, even, T, A)       \
    COUNTING(name, ranged, T, A)

#define FLOATING(name, T, A)            \
    KERNELS(name, T, A)                 \
    KERNEL(name, nans_looked_for, T, A) \
    KERNEL(name, nans_counted, T, A)    \
    KERNEL(name, nans_left_out, T, A)   \
    KERNEL(name, nans_put, T, A)

#ifdef FOR_f16
FLOATING(f16, Half, float)
#endif
#ifdef FOR_bf16
FLOATING(bf16, Brain, float)
#endif
#ifdef FOR_f32
FLOATING(f32, float, float)
#endif
#ifdef FOR_f64
FLOATING(f64, double, double)
#endif
#ifdef FOR_i8
KERNELS(i8, signed char, signed char)
#endif
#ifdef FOR_i16
KERNELS(i16, short, short)
#endif
#ifdef FOR_i32
KERNELS(i32, int, int)
#endif
#ifdef FOR_i64
KERNELS(i64, i64, i64)
#endif
#ifdef FOR_u8
KERNELS(u8, u8, u8)
#endif
#ifdef FOR_u16
KERNELS(u16, u16, u16)
#endif
#ifdef FOR_u32
KERNELS(u32, u32, u32)
#endif
#ifdef FOR_u64
KERNELS(u64, u64, u64)
#endif
