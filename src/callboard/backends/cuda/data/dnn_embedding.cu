// Rows of a table by their numbers, and the gradient of the table: sorted numbers, whose rows are added up in order. Beside
// what dnn.cuh wants, there are defined: INDEX, the type of the numbers; LANES, threads of a row; ROWS, rows of a block.

#include "numbers.cuh"
#include "dnn.cuh"

struct Args {
    const TYPE* rows_at;  // of the table, or of dy
    const INDEX* indices;
    TYPE* out;
    u64* fault;    // how many numbers are out of range, and one of them
    u64* keys;     // a number in the upper half, where it stands in the lower
    ACC* partial;  // sums of a part of the rows of one number
    i64 count, rows, width, packs;  // numbers; rows of the table; packs of a row
    i64 in_row, out_row;            // steps, in elements
    i64 size, run, distance;        // of the sort: a power of two; what is sorted next; how far apart two keys are
    i64 padding, by_frequency;
};

#define EACH_ELEMENT _Pragma("unroll") for (int j = 0; j < VEC; j++)
const u64 NONE = 0xffffffffffffffffull;
const i64 PART = 64;   // rows that are added up by one
const int LOCAL = 2048;  // keys that a block sorts by itself

__device__ __forceinline__ i64 row_of(u64 key) { return (i64)(key >> 32); }

__device__ __forceinline__ bool is_wrong(const Args& p, i64 row, bool tells) {
    if (row >= 0 && row < p.rows) return false;
    if (tells && atomicAdd(p.fault, 1ull) == 0) p.fault[1] = (u64)row;
    return true;
}

extern "C" __global__ void __launch_bounds__(256) lookup(const Args p) {
    const i64 all = p.count * p.packs;
    for (i64 i = (i64)blockIdx.x * 256 + threadIdx.x; i < all; i += (i64)gridDim.x * 256) {
        const i64 n = i / p.packs, at = i - n * p.packs, row = (i64)p.indices[n];
        if (is_wrong(p, row, at == 0)) continue;
        ((Packed*)(p.out + n * p.out_row))[at] = ((const Packed*)(p.rows_at + row * p.in_row))[at];
    }
}

extern "C" __global__ void __launch_bounds__(256) keys(const Args p) {
    for (i64 i = (i64)blockIdx.x * 256 + threadIdx.x; i < p.size; i += (i64)gridDim.x * 256) {
        u64 key = NONE;
        if (i < p.count) {
            const i64 row = (i64)p.indices[i];
            if (!is_wrong(p, row, true) && row != p.padding) key = (u64)row << 32 | (u64)i;
        }
        p.keys[i] = key;
    }
}

// -- a bitonic sort ----------------------------------------------------------------------------------------------------

__device__ __forceinline__ void order(u64& low, u64& high, bool up) {
    if ((low > high) == up) {
        const u64 kept = low;
        low = high;
        high = kept;
    }
}

// The steps with keys less than LOCAL apart: of all runs up to LOCAL, or the rest of a longer one.
extern "C" __global__ void __launch_bounds__(LOCAL / 2) sort_local(const Args p) {
    __shared__ u64 own[LOCAL];
    const i64 first = (i64)blockIdx.x * LOCAL;
    for (int i = threadIdx.x; i < LOCAL; i += LOCAL / 2) own[i] = p.keys[first + i];
    __syncthreads();
    for (i64 run = p.run > LOCAL ? p.run : 2; run <= p.run; run *= 2) {
        for (int distance = run > LOCAL ? LOCAL / 2 : (int)run / 2; distance; distance /= 2) {
            const int t = threadIdx.x, i = t / distance * distance * 2 + t % distance;
            order(own[i], own[i + distance], ((first + i) & run) == 0);
            __syncthreads();
        }
    }
    for (int i = threadIdx.x; i < LOCAL; i += LOCAL / 2) p.keys[first + i] = own[i];
}

extern "C" __global__ void __launch_bounds__(256) sort_step(const Args p) {
    for (i64 t = (i64)blockIdx.x * 256 + threadIdx.x; t < p.size / 2; t += (i64)gridDim.x * 256) {
        const i64 i = t / p.distance * p.distance * 2 + t % p.distance;
        order(p.keys[i], p.keys[i + p.distance], (i & p.run) == 0);
    }
}

// -- sums of rows ------------------------------------------------------------------------------------------------------

// The first key that is not below this one.
__device__ __forceinline__ i64 bound(const Args& p, u64 key) {
    i64 low = 0, left = p.count;
    while (left > 0) {
        const i64 half = left / 2;
        if (p.keys[low + half] < key) {
            low += half + 1;
            left -= half + 1;
        } else {
            left = half;
        }
    }
    return low;
}

__device__ __forceinline__ bool is_start(const Args& p, i64 at) {
    return at == 0 || row_of(p.keys[at - 1]) != row_of(p.keys[at]);
}

// Where the sums of a part are kept. Parts of rows that have several begin PART apart, but for the first part of a row
// behind the last of another: no more than one of either kind begins within PART keys.
__device__ __forceinline__ ACC* part_at(const Args& p, i64 at, bool start) {
    return p.partial + (at / PART * 2 + start) * p.width;
}

// Parts of up to PART keys of one number, at whose first key a row of threads is.
extern "C" __global__ void __launch_bounds__(LANES * ROWS) sum_parts(const Args p) {
    const i64 at = (i64)blockIdx.x * ROWS + threadIdx.x / LANES;
    if (at >= p.count || p.keys[at] == NONE) return;
    const i64 row = row_of(p.keys[at]);
    const bool start = is_start(p, at);
    if (!start) {
        if (at < PART || row_of(p.keys[at - PART]) != row) return;
        if ((at - bound(p, (u64)row << 32)) % PART) return;
    }
    i64 many = 1;
    while (many < PART && at + many < p.count && row_of(p.keys[at + many]) == row) many++;
    const bool whole = start && !(many == PART && at + many < p.count && row_of(p.keys[at + many]) == row);
    for (i64 pack = threadIdx.x % LANES; pack < p.packs; pack += LANES) {
        ACC sum[VEC] = {};
#pragma unroll 4
        for (i64 k = 0; k < many; k++) {
            const i64 from = (i64)(p.keys[at + k] & 0xffffffffu);
            const Packed v = ((const Packed*)(p.rows_at + from * p.in_row))[pack];
            EACH_ELEMENT sum[j] += wide(v.at[j]);
        }
        if (whole) {
            Packed found;
            EACH_ELEMENT found.at[j] = stored(p.by_frequency ? sum[j] / (ACC)many : sum[j]);
            ((Packed*)(p.out + row * p.out_row))[pack] = found;
        } else {
            ACC* const part = part_at(p, at, start) + pack * VEC;
            EACH_ELEMENT part[j] = sum[j];
        }
    }
}

// The parts of the numbers that have several: at most one of them begins within PART keys.
extern "C" __global__ void __launch_bounds__(LANES * ROWS) join_parts(const Args p) {
    const i64 first = ((i64)blockIdx.x * ROWS + threadIdx.x / LANES) * PART;
    i64 at = -1;
    for (i64 i = first; i < first + PART && i + PART < p.count; i++) {
        if (p.keys[i] != NONE && row_of(p.keys[i + PART]) == row_of(p.keys[i]) && is_start(p, i)) at = i;
    }
    if (at < 0) return;
    const i64 row = row_of(p.keys[at]), many = bound(p, (u64)(row + 1) << 32) - at;
    for (i64 pack = threadIdx.x % LANES; pack < p.packs; pack += LANES) {
        ACC sum[VEC] = {};
        for (i64 k = 0; k < many; k += PART) {
            const ACC* const part = part_at(p, at + k, k == 0) + pack * VEC;
            EACH_ELEMENT sum[j] += part[j];
        }
        Packed found;
        EACH_ELEMENT found.at[j] = stored(p.by_frequency ? sum[j] / (ACC)many : sum[j]);
        ((Packed*)(p.out + row * p.out_row))[pack] = found;
    }
}
