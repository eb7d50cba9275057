// Arrays from one type to another: FROM and TO are names of the types in convert.cuh.

#include "numbers.cuh"
#include "convert.cuh"
#include "copying.cuh"

// I: type of the linear index; 32-bit divisions are several times faster than 64-bit ones.
template <typename I>
__device__ void cast(const CopyArgs& a) {
    const i64 threads = (i64)gridDim.x * blockDim.x;
#pragma unroll 1
    for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < a.count; i += threads) {
        I rest = (I)i;
        i64 from = 0, to = 0;
#pragma unroll 1
        for (int k = a.axes - 1; k > 0; k--) {
            const I next = rest / (I)a.extent[k];
            const i64 at = (i64)(rest - next * (I)a.extent[k]);
            from += at * a.src_step[k];
            to += at * a.out_step[k];
            rest = next;
        }
        from += (i64)rest * a.src_step[0];
        to += (i64)rest * a.out_step[0];
        convert_one(a.src + from * size_of(FROM), a.out + to * size_of(TO), FROM, TO);
    }
}

extern "C" __global__ void cast(const __grid_constant__ CopyArgs a) { cast<u32>(a); }
extern "C" __global__ void cast_wide(const __grid_constant__ CopyArgs a) { cast<u64>(a); }
