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

template <typename T, typename A>
struct Even {
    static __device__ i64 bin(const CubArgs& p, T x) {
        const double value = (double)widen<A, T>(x);
        if (!(value >= p.lower && value < p.upper)) return -1;
        const i64 at = (i64)floor(__dmul_rn(__dsub_rn(value, p.lower), p.scale));
        return at < p.bins ? at : p.bins - 1;
    }
};

template <typename T, typename A>
struct Ranged {
    static __device__ i64 bin(const CubArgs& p, T x) {
        const A value = widen<A, T>(x);
        if (value != value) return -1;
        const i64 at = bound_of<T, A, true>((const T*)p.b, p.bins + 1, value) - 1;
        return at < p.bins ? at : -1;
    }
};

// In counters of the block, where they fit, and from there into the result; it has been cleared.
template <typename T, typename Rule>
__device__ void count(const CubArgs& p) {
    extern __shared__ u32 counters[];
    u64* out = (u64*)p.out;
    const i64 total = p.m * p.bins;
    if (p.shared) {
        for (i64 i = threadIdx.x; i < total; i += blockDim.x) counters[i] = 0;
        __syncthreads();
    }
    for (i64 i = thread(); i < p.n; i += threads()) {
        const i64 channel = p.k == 1 ? 0 : i % p.k;
        if (channel >= p.m) continue;
        const i64 bin = Rule::bin(p, ((const T*)p.a)[i]);
        if (bin < 0) continue;
        if (p.shared) {
            atomicAdd(counters + channel * p.bins + bin, 1u);
        } else {
            atomicAdd(out + channel * p.bins + bin, (u64)1);
        }
    }
    if (p.shared) {
        __syncthreads();
        for (i64 i = threadIdx.x; i < total; i += blockDim.x) {
            if (counters[i]) atomicAdd(out + i, (u64)counters[i]);
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
#define KERNELS(name, T, A)          \
    KERNEL(name, canonical, T, A)    \
    KERNEL(name, rounded, T, A)      \
    KERNEL(name, extreme_parts, T, A) \
    KERNEL(name, extreme, T, A)      \
    KERNEL(name, lower, T, A)        \
    KERNEL(name, upper, T, A)        \
    KERNEL(name, even, T, A)         \
    KERNEL(name, ranged, T, A)

#ifdef FOR_f16
KERNELS(f16, Half, float)
#endif
#ifdef FOR_bf16
KERNELS(bf16, Brain, float)
#endif
#ifdef FOR_f32
KERNELS(f32, float, float)
#endif
#ifdef FOR_f64
KERNELS(f64, double, double)
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
