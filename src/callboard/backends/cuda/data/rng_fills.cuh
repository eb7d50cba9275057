// Fills whose every element is made of a fixed number of words: "philox" and "philox64" draw and make them at once,
// "turn" makes them of words in memory, "xorwow" of its lanes. A file for each dtype chooses among them, since compiling them takes seconds.

#include "rng_philox.cuh"

// -- distributions ----------------------------------------------------------------------------------------------------

// Real: what is computed in; BITS of a uniform number, so that every one of them is exact in T.
template <typename T> struct Of { typedef float Real; static const int K = 1, BITS = 24; };
template <> struct Of<double> { typedef double Real; static const int K = 2, BITS = 53; };
template <> struct Of<Half> { typedef float Real; static const int K = 1, BITS = 11; };
template <> struct Of<Brain> { typedef float Real; static const int K = 1, BITS = 8; };

template <typename T> struct Bits {
    typedef T Type;
    static const int K = sizeof(T) / 4;
    __device__ static T one(u32 w, const FillArgs&) { return w; }
    __device__ static T one(u64 w, const FillArgs&) { return w; }
};

template <typename T> struct Uniform {
    typedef T Type;
    static const int K = Of<T>::K;
    __device__ static T one(u32 w, const FillArgs& a) {
        const float unit = __fmul_rn((float)(w >> (32 - Of<T>::BITS)), 1.0f / (1u << Of<T>::BITS));
        const float x = __fadd_rn((float)a.a, __fmul_rn((float)a.b, unit));
        return to(fminf(x, (float)a.top), (T*)0);
    }
    __device__ static T one(u64 w, const FillArgs& a) {
        return fmin(__dadd_rn(a.a, __dmul_rn(a.b, unit_53(w))), a.top);
    }
};

template <typename T> struct Unit {  // of [0, 1): what Uniform gives for it
    typedef T Type;
    static const int K = Of<T>::K;
    __device__ static T one(u32 w, const FillArgs&) {
        return to(__fmul_rn((float)(w >> (32 - Of<T>::BITS)), 1.0f / (1u << Of<T>::BITS)), (T*)0);
    }
    __device__ static T one(u64 w, const FillArgs&) { return unit_53(w); }
};

template <typename T> struct Exponential {
    typedef T Type;
    static const int K = Of<T>::K;
    __device__ static T one(u32 w, const FillArgs& a) { return to(-logf(above_32(w)) * (float)a.a, (T*)0); }
    __device__ static T one(u64 w, const FillArgs& a) { return -log(above_53(w)) * a.a; }
};

template <typename T> struct Cauchy {  // the inverse of the distribution function: both tails are as fine as the middle
    typedef T Type;
    static const int K = Of<T>::K;
    __device__ static T one(u32 w, const FillArgs& a) {
        const bool upper = w >> 31;
        const float u = ((float)(upper ? ~w : w) + 0.5f) * INV_32, x = cospif(u) / sinpif(u);
        return to((float)a.a + (float)a.b * (upper ? x : -x), (T*)0);
    }
    __device__ static T one(u64 w, const FillArgs& a) {
        const bool upper = w >> 63;
        const double u = ((double)(i64)((upper ? ~w : w) >> 11) + 0.5) * INV_53, x = cospi(u) / sinpi(u);
        return a.a + a.b * (upper ? x : -x);
    }
};

// By the inverse of the distribution function, one word an element: what quasi-random points need.
template <typename T, bool LOG> struct Inverse {
    typedef T Type;
    static const int K = Of<T>::K;
    __device__ static T one(u32 w, const FillArgs& a) {
        const double u = ((double)w + 0.5) * (1.0 / 4294967296.0);
        const float x = (float)(a.a + a.b * normcdfinv(u));
        return to(LOG ? expf(x) : x, (T*)0);
    }
    __device__ static T one(u64 w, const FillArgs& a) {
        const double x = a.a + a.b * normcdfinv(((double)(i64)(w >> 12) + 0.5) * (2 * INV_53));
        return LOG ? exp(x) : x;
    }
};

template <typename T> struct Discrete {  // the first sum that is larger than the number
    typedef T Type;
    static const int K = 2;
    __device__ static T one(u64 w, const FillArgs& a) {
        const double x = __dmul_rn(unit_53(w), a.table[a.size - 1]);
        i64 low = 0, high = a.size - 1;
        while (low < high) {
            const i64 middle = (low + high) >> 1;
            if (a.table[middle] > x) high = middle;
            else low = middle + 1;
        }
        return (T)low;
    }
};

// Box and Muller, "A note on the generation of random normal deviates", Ann. Math. Stat. 29 (1958).
__device__ inline void box_muller(u32 u, u32 v, float& x, float& y) {
    float radius;
    asm("sqrt.approx.f32 %0, %1;" : "=f"(radius) : "f"(-2.0f * logf(above_32(u))));
    // Within half a turn either side the fast sine and cosine are wrong by 2**-21 at most.
    const float turn = (float)(int)v * (2.0f * 3.14159265f * INV_32);
    x = __sinf(turn) * radius;
    y = __cosf(turn) * radius;
}
__device__ inline void box_muller(u64 u, u64 v, double& x, double& y) {
    const double radius = sqrt(-2.0 * log(above_53(u)));
    sincospi(2.0 * unit_53(v), &x, &y);
    x *= radius;
    y *= radius;
}

template <typename T, bool LOG> struct Normal {
    typedef T Type;
    static const int K = Of<T>::K;
    __device__ static T scaled(float z, const FillArgs& a) {
        const float x = (float)a.a + (float)a.b * z;
        return to(LOG ? expf(x) : x, (T*)0);
    }
    __device__ static T scaled(double z, const FillArgs& a) {
        const double x = a.a + a.b * z;
        return LOG ? exp(x) : x;
    }
};

// -- fills ------------------------------------------------------------------------------------------------------------

template <typename D, int W, int K> struct Make {
    __device__ static void group(const u32 (&w)[W], typename D::Type (&x)[W / K], const FillArgs& a);
};
template <typename D, int W> struct Make<D, W, 1> {
    __device__ static void group(const u32 (&w)[W], typename D::Type (&x)[W], const FillArgs& a) {
#pragma unroll
        for (int i = 0; i < W; ++i) x[i] = D::one(w[i], a);
    }
};
template <typename D, int W> struct Make<D, W, 2> {
    __device__ static void group(const u32 (&w)[W], typename D::Type (&x)[W / 2], const FillArgs& a) {
#pragma unroll
        for (int i = 0; i < W / 2; ++i) x[i] = D::one(wide(w[2 * i], w[2 * i + 1]), a);
    }
};
template <typename T, bool LOG, int W> struct Make<Normal<T, LOG>, W, 1> {
    __device__ static void group(const u32 (&w)[W], T (&x)[W], const FillArgs& a) {
#pragma unroll
        for (int i = 0; i < W; i += 2) {
            float p, q;
            box_muller(w[i], w[i + 1], p, q);
            x[i] = Normal<T, LOG>::scaled(p, a);
            x[i + 1] = Normal<T, LOG>::scaled(q, a);
        }
    }
};
template <typename T, bool LOG, int W> struct Make<Normal<T, LOG>, W, 2> {
    __device__ static void group(const u32 (&w)[W], T (&x)[W / 2], const FillArgs& a) {
#pragma unroll
        for (int i = 0; i < W / 4; ++i) {
            double p, q;
            box_muller(wide(w[4 * i], w[4 * i + 1]), wide(w[4 * i + 2], w[4 * i + 3]), p, q);
            x[2 * i] = Normal<T, LOG>::scaled(p, a);
            x[2 * i + 1] = Normal<T, LOG>::scaled(q, a);
        }
    }
};

template <typename T, int N> struct alignas(sizeof(T) * N > 16 ? 16 : sizeof(T) * N) Packed { T x[N]; };

// A group of words is made by one thread into N elements, which are written at once: whole groups, aligned in memory.
template <typename S, typename D> __device__ void fill(const FillArgs& a) {
    const int N = S::WORDS / D::K;
    typedef Packed<typename D::Type, N> Pack;
    const u64 first = a.position / S::WORDS, groups = (u64)a.count / N, most = 1ull << 31;
    const u32 thread = blockIdx.x * blockDim.x + threadIdx.x, threads = gridDim.x * blockDim.x;
    for (u64 base = 0; base < groups; base += most) {
        Pack* const out = (Pack*)a.out + base;
        const u32 count = (u32)(groups - base < most ? groups - base : most);
#pragma unroll 2
        for (u32 i = thread; i < count; i += threads) {
            u32 w[S::WORDS];
            S::group(first + base + i, a.seed, w);
            Pack made;
            Make<D, S::WORDS, D::K>::group(w, made.x, a);
            out[i] = made;
        }
    }
}

// The same wherever it begins and ends: by way of shared memory, so that a warp writes what is side by side.
template <typename S, typename D> __device__ void fill_cut(const FillArgs& a) {
    const int N = S::WORDS / D::K;
    typedef typename D::Type T;
    typedef Packed<T, N> Pack;
    const u64 first = a.position / S::WORDS, last = (a.position + (u64)a.count * D::K - 1) / S::WORDS;
    const i64 skipped = (i64)(a.position % S::WORDS / D::K), end = skipped + a.count;  // in elements of all groups
    T* const out = (T*)a.out - skipped;
    __shared__ Pack staged[THREADS];
    const int lane = threadIdx.x % 32;
    Pack* const tile = staged + (threadIdx.x - lane);
    const u64 threads = (u64)gridDim.x * blockDim.x;
    for (u64 from = first + (u64)blockIdx.x * blockDim.x + threadIdx.x - lane; from <= last; from += threads) {
        u32 w[S::WORDS];
        S::group(from + lane, a.seed, w);
        Make<D, S::WORDS, D::K>::group(w, tile[lane].x, a);
        __syncwarp();
#pragma unroll
        for (int i = 0; i < N; ++i) {
            const i64 element = (i64)(from - first) * N + 32 * i + lane;
            if (element >= skipped && element < end) out[element] = ((T*)tile)[32 * i + lane];
        }
        __syncwarp();
    }
}

// XORWOW: a thread for each lane (two, where an element takes two words) of each segment of rows, from states that
// "xorwow_begin" and "xorwow_spread" have left: five words and a counter, of all lanes of a segment side by side.
const u32 LANES = 4096, STEP = 362437;

template <typename D> __device__ void abreast(const FillArgs& a) {
    const u32 K = D::K, thread = blockIdx.x * blockDim.x + threadIdx.x;
    const u32 segment = thread / (LANES / K), group = thread % (LANES / K);
    const u32* const states = a.words + (u64)segment * 6 * LANES + K * group;
    typename D::Type* const out = (typename D::Type*)a.out;
    u32 x[K][6], w[K];
#pragma unroll
    for (u32 k = 0; k < K; ++k) {
#pragma unroll
        for (int i = 0; i < 6; ++i) x[k][i] = states[i * LANES + k];
    }
    i64 element = (i64)segment * a.size * (LANES / K) + group - (i64)(a.position % LANES / K);
    for (i64 row = 0; row < a.size && element < a.count; ++row, element += LANES / K) {
#pragma unroll
        for (u32 k = 0; k < K; ++k) {
            const u32 t = x[k][0] ^ x[k][0] >> 2, last = x[k][4];
#pragma unroll
            for (int i = 0; i < 4; ++i) x[k][i] = x[k][i + 1];
            x[k][4] = last ^ last << 4 ^ t ^ t << 1;
            x[k][5] += STEP;
            w[k] = x[k][4] + x[k][5];
        }
        if (element < 0) continue;
        if constexpr (D::K == 1) out[element] = D::one(w[0], a);
        else out[element] = D::one(wide(w[0], w[1]), a);
    }
}

// Sixteen bytes of words at once, where both sides are aligned for that. An element may lie where its words do.
template <typename D> __device__ void turn(const FillArgs& a) {
    typedef typename D::Type T;
    const int N = 4 / D::K;
    typedef Packed<T, N> Pack;
    const i64 thread = (i64)blockIdx.x * blockDim.x + threadIdx.x, threads = (i64)gridDim.x * blockDim.x;
    const bool aligned = ((u64)a.words & 15) == 0 && ((u64)a.out & (sizeof(Pack) - 1)) == 0;
    const i64 groups = aligned ? a.count / N : 0;
#pragma unroll 2
    for (i64 i = thread; i < groups; i += threads) {
        const Packed<u32, 4> w = ((const Packed<u32, 4>*)a.words)[i];
        Pack made;
#pragma unroll
        for (int k = 0; k < N; ++k) {
            if constexpr (D::K == 1) made.x[k] = D::one(w.x[k], a);
            else made.x[k] = D::one(wide(w.x[2 * k], w.x[2 * k + 1]), a);
        }
        ((Pack*)a.out)[i] = made;
    }
    for (i64 i = groups * N + thread; i < a.count; i += threads) {
        if constexpr (D::K == 1) ((T*)a.out)[i] = D::one(a.words[i], a);
        else ((T*)a.out)[i] = D::one(((const u64*)a.words)[i], a);
    }
}

#define FILL(NAME, ...)                                                                                     \
    extern "C" __global__ void philox_##NAME(const FillArgs a) { fill<Philox32, __VA_ARGS__>(a); }          \
    extern "C" __global__ void philox64_##NAME(const FillArgs a) { fill<Philox64, __VA_ARGS__>(a); }        \
    extern "C" __global__ void philox_##NAME##_cut(const FillArgs a) { fill_cut<Philox32, __VA_ARGS__>(a); } \
    extern "C" __global__ void philox64_##NAME##_cut(const FillArgs a) { fill_cut<Philox64, __VA_ARGS__>(a); }
#define ABREAST(NAME, ...) \
    extern "C" __global__ void xorwow_##NAME(const FillArgs a) { abreast<__VA_ARGS__>(a); }
#define TURN(NAME, ...)                                                                \
    extern "C" __global__ void turn_##NAME(const FillArgs a) { turn<__VA_ARGS__>(a); } \
    ABREAST(NAME, __VA_ARGS__)
#define OF_TYPE(T)                     \
    FILL(unit, Unit<T>)                \
    FILL(uniform, Uniform<T>)          \
    FILL(exponential, Exponential<T>)  \
    FILL(cauchy, Cauchy<T>)            \
    FILL(normal, Normal<T, false>)     \
    FILL(log_normal, Normal<T, true>)  \
    TURN(uniform, Uniform<T>)          \
    TURN(exponential, Exponential<T>)  \
    TURN(cauchy, Cauchy<T>)            \
    TURN(normal, Inverse<T, false>)    \
    TURN(log_normal, Inverse<T, true>)
