// What the kernels for sparse matrices share: elements by their size, the threads of a grid, a search, and their
// declarations.

#include "numbers.cuh"

// Half is f16 or bf16 here.
struct Real { u32 bits; };
struct Double { u64 bits; };
struct Complex { u32 re, im; };
struct alignas(16) Wide { u64 re, im; };

// Anything but 0 and -0: NaN is an entry.
__device__ bool stored(Half x) { return x.bits & 0x7fff; }
__device__ bool stored(Real x) { return x.bits & 0x7fffffffu; }
__device__ bool stored(Double x) { return x.bits << 1; }
__device__ bool stored(Complex x) { return (x.re | x.im) & 0x7fffffffu; }
__device__ bool stored(Wide x) { return (x.re | x.im) << 1; }

__device__ i64 thread() { return (i64)blockIdx.x * blockDim.x + threadIdx.x; }
__device__ i64 threads() { return (i64)gridDim.x * blockDim.x; }

// What counts as far as indices of a type reach: half of the time of a search or a division is saved with 32 bits.
template <typename I> struct Reach { typedef u64 N; };
template <> struct Reach<int> { typedef u32 N; };

// The first of n sorted items that is not below (or, above: that is above) a value. None of them is negative.
template <typename I>
__device__ i64 bound(const I* items, i64 n, i64 value, bool above) {
    typedef typename Reach<I>::N N;
    const N wanted = (N)value;
    N low = 0, left = (N)n;
    while (left) {
        const N half = left / 2, item = (N)items[low + half];
        if (item < wanted || (above && item == wanted)) {
            low += half + 1;
            left -= half + 1;
        } else {
            left = half;
        }
    }
    return (i64)low;
}

// A kernel with the arguments of its file, which are called Args there.
#define KERNEL(name, ...) extern "C" __global__ void name(const __grid_constant__ Args p) { __VA_ARGS__(p); }
