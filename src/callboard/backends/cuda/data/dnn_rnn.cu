// Dropout between the layers of a recurrent network: word offset + i of Philox judges element i, as in dnn.dropout. The
// masks are kept, a byte for each element, for the backward pass.

#include "rng_philox.cuh"

struct DropArgs {
    const void* x;
    void* out;  // may be x
    u8* mask;
    i64 count;
    u64 seed, offset, below;  // a word below it drops its element
    double scale;             // of what is kept
};

template <typename T, typename A>
__device__ void drop(const DropArgs& a) {
    const u64 first = a.offset / 4, last = (a.offset + a.count - 1) / 4, step = (u64)gridDim.x * blockDim.x;
    const A scale = (A)a.scale;
    for (u64 group = first + blockIdx.x * (u64)blockDim.x + threadIdx.x; group <= last; group += step) {
        u32 words[4];
        Philox32::group(group, a.seed, words);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const i64 at = (i64)(4 * group + i - a.offset);
            if (at < 0 || at >= a.count) continue;
            const bool kept = words[i] >= a.below;
            a.mask[at] = kept;
            ((T*)a.out)[at] = narrow<T>(kept ? widen<A>(((const T*)a.x)[at]) * scale : (A)0);
        }
    }
}

template <typename T, typename A>
__device__ void passed(const DropArgs& a) {
    const i64 step = (i64)gridDim.x * blockDim.x;
    const A scale = (A)a.scale;
    for (i64 at = blockIdx.x * (i64)blockDim.x + threadIdx.x; at < a.count; at += step) {
        ((T*)a.out)[at] = narrow<T>(a.mask[at] ? widen<A>(((const T*)a.x)[at]) * scale : (A)0);
    }
}

#define KERNELS(NAME, T, A) \
    extern "C" __global__ void drop_##NAME(const DropArgs a) { drop<T, A>(a); } \
    extern "C" __global__ void passed_##NAME(const DropArgs a) { passed<T, A>(a); }

KERNELS(f16, Half, float)
KERNELS(bf16, Brain, float)
KERNELS(f32, float, float)
KERNELS(f64, double, double)
