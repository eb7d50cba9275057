// What the kernels of parallel primitives share: their arguments, and the order of keys.

#include "numbers.cuh"

struct CubArgs {
    const void *a, *b, *c, *d;
    void *out, *second;
    i64 n, m, k, room;
    double lower, upper, scale;
    u64 start;  // the bits of a number
    int bins, shared, exclusive, least;
};

__device__ i64 thread() { return blockIdx.x * (i64)blockDim.x + threadIdx.x; }
__device__ i64 threads() { return gridDim.x * (i64)blockDim.x; }

// NaN is behind everything else; so does NumPy sort.
template <typename A>
__device__ bool before(A x, A y) {
    return y != y ? x == x : x < y;
}

// The first element of a sorted line that is not before a value (upper: that it is before).
template <typename T, typename A, bool UPPER>
__device__ i64 bound_of(const T* line, i64 n, A value) {
    i64 low = 0;
    while (n > 0) {
        const i64 half = n >> 1;
        const A at = widen<A, T>(line[low + half]);
        if (UPPER ? !before<A>(value, at) : before<A>(at, value)) {
            low += half + 1;
            n -= half + 1;
        } else {
            n = half;
        }
    }
    return low;
}

// How many items there are: as many as have been found, or fit.
__device__ i64 items(const CubArgs& p) {
    if (!p.d) return p.n;
    const i64 found = *(const i64*)p.d;
    return found < p.room ? found : p.room;
}
