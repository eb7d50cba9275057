// Products that cuSPARSE does not have: of matrices of any blocks with dense ones, and dense products at the entries of
// a sparse matrix. Each element of the result is added up by one thread, in order: the same bits each time.

#include "sparse.cuh"
#include "sparse_numbers.cuh"

struct ProductArgs {
    const void* values;
    const void* indices;
    const void* pointers;
    const void* a;         // dense, of a sampled product
    const void* b;
    void* out;
    Factor alpha, beta;
    i64 lines;             // block rows
    i64 down, across;      // of a block; 1 and 1 for entries
    i64 most;              // blocks in a block row of a blocked-ELL matrix
    i64 entries;           // stored ones
    i64 cols, terms;       // of the result; of a sum of a sampled product
    i64 a_row, a_col, b_row, b_col, out_row, out_col;
    int ell;
};

template <typename A, typename T>
__device__ void finish(const ProductArgs& p, A sum, const T* addend, T* out) {
    const A beta = number<A>(p.beta);
    sum = number<A>(p.alpha) * sum;
    put(out, zero(beta) ? sum : sum + beta * wide(*addend));
}

// The blocks of a block row.
template <typename I>
__device__ void span(const ProductArgs& p, i64 line, i64& begin, i64& end) {
    begin = p.ell ? line * p.most : (i64)((const I*)p.pointers)[line];
    end = p.ell ? begin + p.most : (i64)((const I*)p.pointers)[line + 1];
}

// Where a row of a block begins: `at` is the block's place in its block row, `k` among all.
template <typename T>
__device__ const T* row_of(const ProductArgs& p, i64 row, i64 at, i64 k) {
    return (const T*)p.values + (p.ell ? row * p.most + at : k * p.down + row % p.down) * p.across;
}

// A thread for each element: for a few columns.
template <typename T, typename I>
__device__ void multiply(const ProductArgs& p) {
    typedef decltype(wide(T{})) A;
    for (i64 e = thread(); e < p.lines * p.down * p.cols; e += threads()) {
        const i64 row = e / p.cols, col = e % p.cols;
        const T* const right = (const T*)p.b + col * p.b_col;
        i64 begin, end;
        span<I>(p, row / p.down, begin, end);
        A sum{};
        for (i64 k = begin; k < end; ++k) {
            const i64 at = ((const I*)p.indices)[k];
            if (at < 0) continue;
            const T* const left = row_of<T>(p, row, k - begin, k);
            for (i64 q = 0; q < p.across; ++q) sum = sum + wide(left[q]) * wide(right[(at * p.across + q) * p.b_row]);
        }
        T* const out = (T*)p.out + row * p.out_row + col * p.out_col;
        finish(p, sum, out, out);
    }
}

#define SIDE 4

// A thread for SIDE rows of a block row and SIDE columns, those of a warp side by side: each element that is read serves
// SIDE products.
template <typename T, typename I>
__device__ void multiply_tiles(const ProductArgs& p) {
    typedef decltype(wide(T{})) A;
    const i64 across = (p.cols + 32 * SIDE - 1) / (32 * SIDE), down = (p.down + SIDE - 1) / SIDE;
    for (i64 e = thread(); e < p.lines * down * across * 32; e += threads()) {
        const i64 tile = e / 32 / across, line = tile / down, first = tile % down * SIDE;
        const i64 col = e / 32 % across * (32 * SIDE) + e % 32;
        const int rows = (int)(p.down - first < SIDE ? p.down - first : SIDE);
        i64 begin, end;
        span<I>(p, line, begin, end);
        A sums[SIDE][SIDE] = {};
        for (i64 k = begin; k < end; ++k) {
            const i64 at = ((const I*)p.indices)[k];
            if (at < 0) continue;
            const T* left[SIDE];
            for (int i = 0; i < SIDE; ++i) {
                left[i] = row_of<T>(p, line * p.down + first + (i < rows ? i : 0), k - begin, k);
            }
            for (i64 q = 0; q < p.across; ++q) {
                const T* const right = (const T*)p.b + (at * p.across + q) * p.b_row;
                A factors[SIDE];
                for (int j = 0; j < SIDE; ++j) {
                    factors[j] = wide(right[(col + 32 * j < p.cols ? col + 32 * j : 0) * p.b_col]);
                }
                for (int i = 0; i < SIDE; ++i) {
                    const A x = wide(left[i][q]);
                    for (int j = 0; j < SIDE; ++j) sums[i][j] = sums[i][j] + x * factors[j];
                }
            }
        }
        for (int i = 0; i < rows; ++i) {
            for (int j = 0; j < SIDE && col + 32 * j < p.cols; ++j) {
                T* const out = (T*)p.out + (line * p.down + first + i) * p.out_row + (col + 32 * j) * p.out_col;
                finish(p, sums[i][j], out, out);
            }
        }
    }
}

template <typename T, typename I>
__device__ void sample(const ProductArgs& p) {
    typedef decltype(wide(T{})) A;
    const I* const pointers = (const I*)p.pointers;
    for (i64 e = thread(); e < p.entries; e += threads()) {
        const i64 k = e / (p.down * p.across), line = bound(pointers, p.lines + 1, k, true) - 1;
        const i64 row = line * p.down + e / p.across % p.down, col = ((const I*)p.indices)[k] * p.across + e % p.across;
        const T* const left = (const T*)p.a + row * p.a_row;
        const T* const right = (const T*)p.b + col * p.b_col;
        A sum{};
        for (i64 t = 0; t < p.terms; ++t) sum = sum + wide(left[t * p.a_col]) * wide(right[t * p.b_row]);
        finish(p, sum, (const T*)p.values + e, (T*)p.out + e);
    }
}

typedef ProductArgs Args;

#define FOR_INDEX(index)                         \
    KERNEL(multiply_f16, multiply<Half, index>)    \
    KERNEL(multiply_bf16, multiply<Brain, index>)  \
    KERNEL(multiply_f32, multiply<float, index>)   \
    KERNEL(multiply_f64, multiply<double, index>)  \
    KERNEL(multiply_c64, multiply<Single, index>)  \
    KERNEL(multiply_c128, multiply<Twice, index>)  \
    KERNEL(tiles_f16, multiply_tiles<Half, index>)    \
    KERNEL(tiles_bf16, multiply_tiles<Brain, index>)  \
    KERNEL(tiles_f32, multiply_tiles<float, index>)   \
    KERNEL(tiles_f64, multiply_tiles<double, index>)  \
    KERNEL(tiles_c64, multiply_tiles<Single, index>)  \
    KERNEL(tiles_c128, multiply_tiles<Twice, index>)  \
    KERNEL(sample_f16, sample<Half, index>)        \
    KERNEL(sample_bf16, sample<Brain, index>)      \
    KERNEL(sample_f32, sample<float, index>)       \
    KERNEL(sample_f64, sample<double, index>)      \
    KERNEL(sample_c64, sample<Single, index>)      \
    KERNEL(sample_c128, sample<Twice, index>)

#include "sparse_indices.cuh"
