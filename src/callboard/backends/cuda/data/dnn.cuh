// What the kernels of deep learning share. Defined before: TYPE, of an element in memory; ACC, of a sum; VEC, elements of a
// pack. A source includes numbers.cuh before this.

template <typename T, int N>
struct __align__(sizeof(T) * N < 16 ? sizeof(T) * N : 16) Pack {
    T at[N];
};
typedef Pack<TYPE, VEC> Packed;

__device__ __forceinline__ ACC wide(TYPE x) { return widen<ACC>(x); }
__device__ __forceinline__ TYPE stored(ACC x) { return narrow<TYPE>(x); }
template <typename T>
__device__ __forceinline__ T lowest() { return (T)__uint_as_float(0xff800000u); }

// Divides numbers below 2**31 by one that is known before the launch.
struct Divider {
    u32 divisor, factor, shift;
    __device__ __forceinline__ u32 operator()(u32 n) const { return (__umulhi(n, factor) + n) >> shift; }
};

// The sum, or the largest, of one number of each of WIDTH neighbouring threads; all of them get it, and all threads of
// the block take part. WIDTH: a power of two up to 32, or a multiple of 32; the block is a multiple of it.
template <int WIDTH, bool MOST, typename A>
__device__ __forceinline__ A joined(A x) {
#pragma unroll
    for (int d = (WIDTH < 32 ? WIDTH : 32) / 2; d; d /= 2) {
        const A other = __shfl_xor_sync(0xffffffffu, x, d);
        x = MOST ? (x != x || x > other ? x : other) : x + other;
    }
    if constexpr (WIDTH > 32) {
        __shared__ A parts[32];
        __syncthreads();  // those that still read the last parts
        if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = x;
        __syncthreads();
        const A* const own = parts + threadIdx.x / WIDTH * (WIDTH / 32);  // of the warps of this row
        x = own[0];
#pragma unroll
        for (int i = 1; i < WIDTH / 32; i++) {
            x = MOST ? (x != x || x > own[i] ? x : own[i]) : x + own[i];
        }
    }
    return x;
}
template <int WIDTH>
__device__ __forceinline__ ACC sum_of(ACC x) { return joined<WIDTH, false>(x); }
template <int WIDTH>
__device__ __forceinline__ ACC most_of(ACC x) { return joined<WIDTH, true>(x); }
