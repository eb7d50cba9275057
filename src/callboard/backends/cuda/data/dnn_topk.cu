// The largest or smallest elements of rows: their border by a radix selection, digit by digit, then a sort of what is
// ahead of it. Beside what dnn.cuh wants, there are defined: KEY, an unsigned type as wide as an element's bits; KEYS, a
// power of two, at least as many as are wanted; LARGEST; THREADS.

#include "numbers.cuh"
#include "dnn.cuh"

struct Args {
    const TYPE* x;
    TYPE* values;
    i64* indices;
    i64 rows, length, x_row, k;
};

__device__ __forceinline__ KEY bits_of(Half x) { return x.bits; }
__device__ __forceinline__ KEY bits_of(Brain x) { return x.bits; }
__device__ __forceinline__ KEY bits_of(float x) { return (KEY)__float_as_uint(x); }
__device__ __forceinline__ KEY bits_of(double x) { return (KEY)__double_as_longlong(x); }

// Larger for what comes first; NaN is the largest element, and zeros are equal.
__device__ __forceinline__ KEY key_of(TYPE x) {
    const ACC v = wide(x);
    const KEY sign = (KEY)((KEY)1 << (sizeof(KEY) * 8 - 1));
    KEY key = v == ACC(0) ? (KEY)0 : bits_of(x);
    key = key & sign ? (KEY)~key : (KEY)(key | sign);
    if (v != v) key = (KEY)~(KEY)0;
    return LARGEST ? key : (KEY)~key;
}

struct Found {
    KEY key;
    u32 index;
    __device__ __forceinline__ bool before(const Found& other) const {
        return key > other.key || (key == other.key && index < other.index);
    }
};

// A block for each row.
extern "C" __global__ void __launch_bounds__(THREADS) top_k(const Args p) {
    __shared__ u32 counts[256];
    __shared__ Found found[KEYS];
    __shared__ KEY border;
    __shared__ u32 needed, tied, last, taken;
    const TYPE* const x = p.x + (i64)blockIdx.x * p.x_row;
    const u32 length = (u32)p.length;
    if (threadIdx.x == 0) {
        border = 0;
        needed = (u32)p.k;
        last = 0;
        taken = 0;
    }
    KEY settled = 0;  // digits of the border that are known
    for (int shift = sizeof(KEY) * 8 - 8; shift >= 0; shift -= 8) {
        for (int i = threadIdx.x; i < 256; i += THREADS) counts[i] = 0;
        __syncthreads();
        const KEY known = border;
        for (u32 i = threadIdx.x; i < length; i += THREADS) {
            const KEY key = key_of(x[i]);
            if ((key & settled) == known) atomicAdd(&counts[key >> shift & 255], 1u);
        }
        __syncthreads();
        if (threadIdx.x == 0) {
            int digit = 255;
            while (needed > counts[digit]) needed -= counts[digit--];
            tied = counts[digit];
            border = (KEY)(border | (KEY)digit << shift);
        }
        settled = (KEY)(settled | (KEY)255 << shift);
        __syncthreads();
    }
    const KEY at = border;
    const bool all = tied == needed;  // of the elements that equal the border
    if (!all) {                       // the first of them by their position
        u32 fixed = 0;
        for (int shift = 24; shift >= 0; shift -= 8) {
            for (int i = threadIdx.x; i < 256; i += THREADS) counts[i] = 0;
            __syncthreads();
            const u32 known = last;
            for (u32 i = threadIdx.x; i < length; i += THREADS) {
                if ((i & fixed) == known && key_of(x[i]) == at) atomicAdd(&counts[i >> shift & 255], 1u);
            }
            __syncthreads();
            if (threadIdx.x == 0) {
                int digit = 0;
                while (needed > counts[digit]) needed -= counts[digit++];
                last |= (u32)digit << shift;
            }
            fixed |= 255u << shift;
            __syncthreads();
        }
    }
    for (int i = threadIdx.x; i < KEYS; i += THREADS) found[i] = {0, 0xffffffffu};
    __syncthreads();
    for (u32 i = threadIdx.x; i < length; i += THREADS) {
        const KEY key = key_of(x[i]);
        if (key > at || (key == at && (all || i <= last))) found[atomicAdd(&taken, 1u)] = {key, i};
    }
    __syncthreads();
    for (int run = 2; run <= KEYS; run *= 2) {
        for (int distance = run / 2; distance; distance /= 2) {
            for (int t = threadIdx.x; t < KEYS / 2; t += THREADS) {
                const int i = t / distance * distance * 2 + t % distance;
                const Found low = found[i], high = found[i + distance];
                if (high.before(low) == ((i & run) == 0)) {
                    found[i] = high;
                    found[i + distance] = low;
                }
            }
            __syncthreads();
        }
    }
    for (int i = threadIdx.x; i < p.k; i += THREADS) {
        p.values[(i64)blockIdx.x * p.k + i] = x[found[i].index];
        p.indices[(i64)blockIdx.x * p.k + i] = (i64)found[i].index;
    }
}
