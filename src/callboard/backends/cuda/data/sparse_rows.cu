// A matrix by rows times a vector. Rows and entries are cut as one list, each row behind its last entry, so that every
// block has as many of both together, however long rows are. What a block has of a row that ends in a later one is
// added to that row by a second kernel. All is added up in an order that follows from the pointers: the same bits each
// time.

#include "sparse.cuh"
#include "sparse_numbers.cuh"

#define THREADS 256
#define EACH 9
#define ITEMS (THREADS * EACH)
#define FEW 64  // rows of a block whose sums are sooner found by a warp each

struct RowArgs {
    const void* values;
    const void* indices;
    const void* pointers;
    const void* x;
    void* out;
    void* rows;   // which goes on in the next block, for each block; -1: none
    void* sums;   // of what the block has of it
    Factor alpha, beta;
    i64 lines, entries, blocks;
};

__device__ float other(float x, int step) { return __shfl_xor_sync(~0u, x, step); }
__device__ double other(double x, int step) { return __shfl_xor_sync(~0u, x, step); }
__device__ Single other(Single x, int step) { return {other(x.re, step), other(x.im, step)}; }
__device__ Twice other(Twice x, int step) { return {other(x.re, step), other(x.im, step)}; }

// How many rows are among the first `items` of the list; asked by a warp, which cuts into 33 parts at a time.
template <typename I>
__device__ i64 ended(const I* pointers, i64 lines, i64 entries, i64 items) {
    i64 low = items > entries ? items - entries : 0, high = items < lines ? items : lines;
    while (low < high) {
        const i64 middle = low + (high - low) * (threadIdx.x % 32 + 1) / 33;
        const int below = __popc(__ballot_sync(~0u, (i64)pointers[middle + 1] < items - middle));
        const i64 last = __shfl_sync(~0u, middle, below ? below - 1 : 0);
        const i64 next = __shfl_sync(~0u, middle, below < 32 ? below : 31);
        if (below) low = last + 1;
        if (below < 32) high = next;
    }
    return low;
}

template <typename T, typename I>
__device__ void sum(const RowArgs& p) {
    __shared__ T part[ITEMS];
    __shared__ i64 edge[2];
    const I* const pointers = (const I*)p.pointers;
    const i64 total = p.lines + p.entries, first = (i64)blockIdx.x * ITEMS;
    const i64 last = first + ITEMS < total ? first + ITEMS : total;
    if (threadIdx.x < 64) {
        const i64 found = ended(pointers, p.lines, p.entries, threadIdx.x < 32 ? first : last);
        if (threadIdx.x % 32 == 0) edge[threadIdx.x / 32] = found;
    }
    __syncthreads();
    const i64 line = edge[0], entry = first - line;
    const int rows = (int)(edge[1] - line), count = (int)(last - edge[1] - entry);
    const T* const values = (const T*)p.values + entry;
    const I* const indices = (const I*)p.indices + entry;
    const T* const x = (const T*)p.x;
#pragma unroll
    for (int k = 0; k < EACH; ++k) {
        const int at = k * THREADS + threadIdx.x;
        if (at < count) part[at] = values[at] * x[indices[at]];
    }
    __syncthreads();
    const int lanes = rows < FEW ? 32 : 1;
    for (int r = threadIdx.x / lanes; r <= rows; r += THREADS / lanes) {
        const int begin = r ? (int)(pointers[line + r] - entry) : 0;
        const int end = r < rows ? (int)(pointers[line + r + 1] - entry) : count;
        T found{};
        for (int at = begin + threadIdx.x % lanes; at < end; at += lanes) found = found + part[at];
        for (int step = lanes / 2; step; step /= 2) found = found + other(found, step);
        if (threadIdx.x % lanes) continue;
        if (r == rows) {
            ((I*)p.rows)[blockIdx.x] = begin < end ? (I)(line + r) : (I)-1;
            ((T*)p.sums)[blockIdx.x] = found;
        } else {
            T* const out = (T*)p.out + line + r;
            const T beta = number<T>(p.beta);
            found = number<T>(p.alpha) * found;
            *out = zero(beta) ? found : found + beta * *out;
        }
    }
}

// A warp for the first of consecutive blocks with parts of the same row.
template <typename T, typename I>
__device__ void add(const RowArgs& p) {
    const I* const rows = (const I*)p.rows;
    const i64 block = thread() / 32;
    if (block >= p.blocks) return;
    const I row = rows[block];
    if (row < 0 || (block && rows[block - 1] == row)) return;
    T found{};
    for (i64 at = block + threadIdx.x % 32;; at += 32) {
        const bool same = at < p.blocks && rows[at] == row;
        if (same) found = found + ((const T*)p.sums)[at];
        if (__ballot_sync(~0u, same) != ~0u) break;
    }
    for (int step = 16; step; step /= 2) found = found + other(found, step);
    T* const out = (T*)p.out + row;
    if (threadIdx.x % 32 == 0) *out = *out + number<T>(p.alpha) * found;
}

#define KERNEL(name, ...) extern "C" __global__ void name(const __grid_constant__ RowArgs p) { __VA_ARGS__(p); }

#define FOR_INDEX(index)                 \
    KERNEL(sum_f32, sum<float, index>)   \
    KERNEL(sum_f64, sum<double, index>)  \
    KERNEL(sum_c64, sum<Single, index>)  \
    KERNEL(sum_c128, sum<Twice, index>)  \
    KERNEL(add_f32, add<float, index>)   \
    KERNEL(add_f64, add<double, index>)  \
    KERNEL(add_c64, add<Single, index>)  \
    KERNEL(add_c128, add<Twice, index>)

// Compiled in parts, one for each type of indices.
#ifdef FOR_i32
FOR_INDEX(int)
#endif
#ifdef FOR_i64
FOR_INDEX(long long)
#endif
