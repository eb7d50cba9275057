// A matrix by rows times a vector. Rows and entries are cut as one list, each row behind its last entry, so that every
// block has as many of both together, however long rows are. What a block has of a row that ends in a later one is
// added to that row by a second kernel. All is added up in an order that follows from the pointers: the same bits each
// time.

#include "sparse.cuh"
#include "sparse_numbers.cuh"

#define THREADS 256
#define EACH 9
#define ITEMS (THREADS * EACH)
#define LONG 32  // entries of a row in a block, more than which a warp adds up, not a thread

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

// Where the entries of a row lie among those of the block: of all `rows` that end in it, and of one that goes on.
template <typename I>
__device__ void span(const I* pointers, i64 entry, int count, int rows, int r, int& begin, int& end) {
    begin = r ? (int)(pointers[r] - entry) : 0;
    end = r < rows ? (int)(pointers[r + 1] - entry) : count;
}

template <typename T, typename I>
__device__ void deliver(const RowArgs& p, i64 row, bool ends, bool any, T found) {
    if (!ends) {
        ((I*)p.rows)[blockIdx.x] = any ? (I)row : (I)-1;
        ((T*)p.sums)[blockIdx.x] = found;
        return;
    }
    T* const out = (T*)p.out + row;
    const T beta = number<T>(p.beta);
    found = number<T>(p.alpha) * found;
    *out = zero(beta) ? found : found + beta * *out;
}

template <typename T, typename I>
__device__ void sum(const RowArgs& p) {
    __shared__ T part[ITEMS];
    __shared__ i64 edge[2];
    __shared__ int longer[ITEMS / LONG + 1], many;
    const i64 total = p.lines + p.entries, first = (i64)blockIdx.x * ITEMS;
    const i64 last = first + ITEMS < total ? first + ITEMS : total;
    if (threadIdx.x < 64) {
        const i64 items = threadIdx.x < 32 ? first : last;
        const i64 found = ended((const I*)p.pointers, p.lines, p.entries, items);
        if (threadIdx.x % 32 == 0) edge[threadIdx.x / 32] = found;
    }
    if (threadIdx.x == 0) many = 0;
    __syncthreads();
    const i64 line = edge[0], entry = first - line;
    const int rows = (int)(edge[1] - line), count = (int)(last - edge[1] - entry);
    const I* const pointers = (const I*)p.pointers + line;
    const T* const values = (const T*)p.values + entry;
    const I* const indices = (const I*)p.indices + entry;
    const T* const x = (const T*)p.x;
#pragma unroll
    for (int k = 0; k < EACH; ++k) {
        const int at = k * THREADS + threadIdx.x;
        if (at < count) part[at] = values[at] * x[indices[at]];
    }
    __syncthreads();
    int begin, end;
    for (int r = threadIdx.x; r <= rows; r += THREADS) {
        span(pointers, entry, count, rows, r, begin, end);
        if (end - begin > LONG) {
            longer[atomicAdd(&many, 1)] = r;
            continue;
        }
        T found{};
        for (int at = begin; at < end; ++at) found = found + part[at];
        deliver<T, I>(p, line + r, r < rows, begin < end, found);
    }
    __syncthreads();
    for (int n = threadIdx.x / 32; n < many; n += THREADS / 32) {
        const int r = longer[n];
        span(pointers, entry, count, rows, r, begin, end);
        T found{};
        for (int at = begin + threadIdx.x % 32; at < end; at += 32) found = found + part[at];
        for (int step = 16; step; step /= 2) found = found + other(found, step);
        if (threadIdx.x % 32 == 0) deliver<T, I>(p, line + r, r < rows, true, found);
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

typedef RowArgs Args;

#define FOR_INDEX(index)                 \
    KERNEL(sum_f32, sum<float, index>)   \
    KERNEL(sum_f64, sum<double, index>)  \
    KERNEL(sum_c64, sum<Single, index>)  \
    KERNEL(sum_c128, sum<Twice, index>)  \
    KERNEL(add_f32, add<float, index>)   \
    KERNEL(add_f64, add<double, index>)  \
    KERNEL(add_c64, add<Single, index>)  \
    KERNEL(add_c128, add<Twice, index>)

#include "sparse_indices.cuh"
