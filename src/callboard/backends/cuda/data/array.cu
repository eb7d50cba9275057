// Elements numbered, and elements moved from or to where integer arrays say, for items of 1, 2, 4, 8 and 16 bytes.

#include "numbers.cuh"
#include "convert.cuh"

struct Pair {  // 16 bytes of the alignment of their halves
    u64 low, high;
};

const int AXES = 32, PICKS = 8;

// Walks the axes of the result of a gather (of the values of a scatter). The steps of an axis that the indices have not
// are those of the array beside; the steps of an axis that only the indices have are 0 there.
struct PickArgs {
    const char* src;
    char* out;
    const char* index[PICKS];
    u64* fault;  // how many are out of range, and of one of them: its value, and which array holds it
    i64 count;
    i64 extent[AXES], src_step[AXES], out_step[AXES];
    i64 index_step[PICKS][AXES];
    i64 limit[PICKS], step[PICKS];  // of the axes that are indexed
    int kind[PICKS];                // type of the indices, a number of convert.cuh
    int axes, picks;
};

struct RangeArgs {
    char* out;
    i64 count, out_step;
    double start[2], step[2];    // of floating and complex types
    u64 whole_start, whole_step;  // of integers
    int type;
};

__device__ __forceinline__ u64 index_at(const char* p, int kind, i64 at) {
    switch (kind) {
        case I8: return (u64)(i64)((const signed char*)p)[at];
        case I16: return (u64)(i64)((const short*)p)[at];
        case I32: return (u64)(i64)((const int*)p)[at];
        case U8: return ((const u8*)p)[at];
        case U16: return ((const u16*)p)[at];
        case U32: return ((const u32*)p)[at];
    }
    return ((const u64*)p)[at];
}

// GET: from where the indices say. PUT: to there, unless CHECK has found one that is out of range. I: type of the linear
// index.
enum Work { GET, PUT, CHECK };

template <typename T, typename I, Work WORK>
__device__ void pick(const PickArgs& a) {
    if (WORK == PUT && *a.fault) {
        return;
    }
    const i64 threads = (i64)gridDim.x * blockDim.x;
#pragma unroll 1
    for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < a.count; i += threads) {
        I rest = (I)i;
        i64 from = 0, to = 0;
        i64 where[PICKS] = {};
#pragma unroll 1
        for (int k = a.axes - 1; k >= 0; k--) {
            const I next = k ? rest / (I)a.extent[k] : 0;
            const i64 at = (i64)(rest - next * (I)a.extent[k]);
            from += at * a.src_step[k];
            to += at * a.out_step[k];
#pragma unroll
            for (int p = 0; p < PICKS; p++) {
                if (p < a.picks) {
                    where[p] += at * a.index_step[p][k];
                }
            }
            rest = next;
        }
        bool inside = true;
#pragma unroll
        for (int p = 0; p < PICKS; p++) {
            if (p < a.picks) {
                const u64 given = index_at(a.index[p], a.kind[p], where[p]);
                const bool behind = a.kind[p] != U64 && (i64)given < 0;
                const u64 at = behind ? given + (u64)a.limit[p] : given;
                if (at >= (u64)a.limit[p]) {
                    inside = false;
                    if (WORK != PUT && atomicAdd(a.fault, 1ull) == 0) {
                        a.fault[1] = given;
                        a.fault[2] = (u64)p;
                    }
                } else if (WORK == PUT) {
                    to += (i64)at * a.step[p];
                } else {
                    from += (i64)at * a.step[p];
                }
            }
        }
        if (WORK != CHECK && inside) {
            ((T*)a.out)[to] = ((const T*)a.src)[from];
        }
    }
}

extern "C" __global__ void arange(const __grid_constant__ RangeArgs a) {
    const i64 threads = (i64)gridDim.x * blockDim.x;
    for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < a.count; i += threads) {
        char* const out = a.out + i * a.out_step * size_of(a.type);
        if (a.type >= I8 && a.type <= U64) {
            const u64 whole = a.whole_start + (u64)i * a.whole_step;
            convert_one(&whole, out, I64, a.type);
        } else {
            // The product is rounded before the sum, as in NumPy: no fused multiply-add.
            const double number[2] = {__dadd_rn(a.start[0], __dmul_rn((double)i, a.step[0])),
                                      __dadd_rn(a.start[1], __dmul_rn((double)i, a.step[1]))};
            convert_one(number, out, C128, a.type);
        }
    }
}

#define KERNELS(SIZE, T)                                                                                                 \
    extern "C" __global__ void gather_##SIZE(const __grid_constant__ PickArgs a) { pick<T, u32, GET>(a); }               \
    extern "C" __global__ void gather_##SIZE##_wide(const __grid_constant__ PickArgs a) { pick<T, u64, GET>(a); }        \
    extern "C" __global__ void scatter_##SIZE(const __grid_constant__ PickArgs a) { pick<T, u32, PUT>(a); }              \
    extern "C" __global__ void scatter_##SIZE##_wide(const __grid_constant__ PickArgs a) { pick<T, u64, PUT>(a); }

extern "C" __global__ void within(const __grid_constant__ PickArgs a) { pick<u8, u32, CHECK>(a); }
extern "C" __global__ void within_wide(const __grid_constant__ PickArgs a) { pick<u8, u64, CHECK>(a); }

KERNELS(1, u8)
KERNELS(2, u16)
KERNELS(4, u32)
KERNELS(8, u64)
KERNELS(16, Pair)
