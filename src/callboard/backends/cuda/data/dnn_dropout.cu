// Dropout by the words of Philox4x32-10, each named by its place. Beside what dnn.cuh wants, MASK is defined: 1 where the
// result says which elements stay. VEC is 4, the words of a block.

#include "rng_philox.cuh"
#include "dnn.cuh"

struct Args {
    const TYPE* x;
    TYPE* out;
    const u64 *seed_at, *offset_at;  // where the numbers are, if not here
    u64 seed, offset, threshold;
    i64 count, packed;
    double factor;
};

__device__ __forceinline__ TYPE judged(const Args& p, i64 i, u32 word, ACC factor) {
    const bool stays = word >= p.threshold;
#if MASK
    return (TYPE)stays;
#else
    return stored(stays ? wide(p.x[i]) * factor : ACC(0));
#endif
}

extern "C" __global__ void __launch_bounds__(256) dropout(const Args p) {
    const u64 seed = p.seed_at ? *p.seed_at : p.seed, offset = p.offset_at ? *p.offset_at : p.offset;
    const ACC factor = (ACC)p.factor;
    const i64 shift = (i64)(offset % VEC);  // words of the first block that belong to nothing
    const i64 blocks = (p.count + shift + VEC - 1) / VEC;
    for (i64 b = (i64)blockIdx.x * blockDim.x + threadIdx.x; b < blocks; b += (i64)gridDim.x * blockDim.x) {
        u32 words[VEC];
        Philox32::group(offset / VEC + (u64)b, seed, words);
        const i64 first = b * VEC - shift;
        if (p.packed && shift == 0 && first + VEC <= p.count) {
            Packed found;
#if MASK
#pragma unroll
            for (int j = 0; j < VEC; j++) found.at[j] = judged(p, first + j, words[j], factor);
#else
            const Packed given = *(const Packed*)(p.x + first);
#pragma unroll
            for (int j = 0; j < VEC; j++) {
                found.at[j] = stored(words[j] >= p.threshold ? wide(given.at[j]) * factor : ACC(0));
            }
#endif
            *(Packed*)(p.out + first) = found;
        } else {
#pragma unroll
            for (int j = 0; j < VEC; j++) {
                const i64 i = first + j;
                if (i >= 0 && i < p.count) p.out[i] = judged(p, i, words[j], factor);
            }
        }
    }
}
