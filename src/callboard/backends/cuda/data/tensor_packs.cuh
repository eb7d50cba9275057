// What all kernels of tensors share: factors, indices, and packs of neighbours that a thread loads and stores at once.

#include "tensor_numbers.cuh"

const int AXES = 32;
const int THREADS = 256;

struct Factor {
    const void* at;  // on the device; null: the number
    double re, im;
};

template <typename A>
__device__ A value_of(const Factor& f) {
    return f.at ? *(const A*)f.at : Number<A>::of(f.re, f.im);
}

__device__ __noinline__ i64 divided(i64 x, i64 y) {  // long, and seldom needed
    return (i64)((u64)x / (u64)y);
}

// The index of an axis from the rest of a linear index. I: int wherever all indices and offsets fit; divisions of 64
// bits are several times slower.
template <typename I>
__device__ I next_index(I& rest, i64 extent) {
    const I next = sizeof(I) == 4 ? (I)((u32)rest / (u32)extent) : (I)divided(rest, extent);
    const I at = rest - next * (I)extent;
    rest = next;
    return at;
}

// Neighbours that a thread loads or stores at once: 16 bytes.
template <typename T>
struct Pack {
    static const int SIZE = 16 / sizeof(T);
    T at[SIZE];
};

template <typename T>
__device__ bool aligned(const T* x) {
    return (u64)x % 16 == 0;
}

template <typename T>
__device__ Pack<T> whole(const T* x) {
    const uint4 words = *(const uint4*)x;
    Pack<T> pack;
    memcpy(&pack, &words, 16);
    return pack;
}

template <typename T>
__device__ void whole(T* x, const Pack<T>& pack) {
    uint4 words;
    memcpy(&words, &pack, 16);
    *(uint4*)x = words;
}

// The first n elements, this far apart; 0 behind them.
template <typename T>
__device__ Pack<T> load(const T* x, i64 by, int n) {
    if (by == 1 && n == Pack<T>::SIZE && aligned(x)) {
        return whole(x);
    }
    Pack<T> pack;
#pragma unroll
    for (int j = 0; j < Pack<T>::SIZE; j++) {
        pack.at[j] = j < n ? x[j * by] : T{};
    }
    return pack;
}

template <typename T>
__device__ void store(T* x, const Pack<T>& pack, i64 by, int n) {
    if (by == 1 && n == Pack<T>::SIZE && aligned(x)) {
        return whole(x, pack);
    }
#pragma unroll
    for (int j = 0; j < Pack<T>::SIZE; j++) {
        if (j < n) {
            x[j * by] = pack.at[j];
        }
    }
}

template <typename A, int N>
__device__ void apply(A* x, int op) {
    if (op != IDENTITY) {
#pragma unroll
        for (int j = 0; j < N; j++) {
            x[j] = Number<A>::unary(x[j], op);
        }
    }
}

template <int OP, typename A, int N>
__device__ void join(A* x, const A* y) {
#pragma unroll
    for (int j = 0; j < N; j++) {
        x[j] = binary(x[j], y[j], OP);
    }
}

// x[j] = x[j] op y[j]. One branch for all, not one for each.
template <typename A, int N>
__device__ void join(A* x, const A* y, int op) {
    switch (op) {
        case ADD: return join<ADD, A, N>(x, y);
        case MUL: return join<MUL, A, N>(x, y);
        case MAX: return join<MAX, A, N>(x, y);
        default: return join<MIN, A, N>(x, y);
    }
}

__device__ int fewer(i64 x, int y) {
    return x < y ? (int)x : y;
}

#define KERNEL(WORK, NAME, ARGS, T, A)                                                                         \
    extern "C" __global__ void __launch_bounds__(THREADS, 4) WORK##_##NAME(const __grid_constant__ ARGS p) { \
        if (p.wide) {                                                                                        \
            WORK<T, A, i64>(p);                                                                              \
        } else {                                                                                             \
            WORK<T, A, int>(p);                                                                              \
        }                                                                                                    \
    }
