// Products that cuSPARSE does not have: of matrices of any blocks with dense ones, and dense products at the entries of
// a sparse matrix. A thread for each element of the result, which adds up in order: the same bits each time.

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

template <typename T, typename I>
__device__ void multiply(const ProductArgs& p) {
    typedef decltype(wide(T{})) A;
    const I* const indices = (const I*)p.indices;
    const I* const pointers = (const I*)p.pointers;
    for (i64 e = thread(); e < p.lines * p.down * p.cols; e += threads()) {
        const i64 row = e / p.cols, col = e % p.cols, line = row / p.down;
        const T* const right = (const T*)p.b + col * p.b_col;
        const i64 begin = p.ell ? line * p.most : (i64)pointers[line];
        const i64 end = p.ell ? begin + p.most : (i64)pointers[line + 1];
        A sum{};
        for (i64 k = begin; k < end; ++k) {
            const i64 at = indices[k];
            if (at < 0) continue;
            const T* const left = (const T*)p.values + (p.ell ? (row * p.most + k - begin) * p.across
                                                              : (k * p.down + row % p.down) * p.across);
            for (i64 q = 0; q < p.across; ++q) sum = sum + wide(left[q]) * wide(right[(at * p.across + q) * p.b_row]);
        }
        T* const out = (T*)p.out + row * p.out_row + col * p.out_col;
        finish(p, sum, out, out);
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

#define KERNEL(name, ...) extern "C" __global__ void name(const __grid_constant__ ProductArgs p) { __VA_ARGS__(p); }

#define FOR_INDEX(index)                         \
    KERNEL(multiply_f16, multiply<Half, index>)    \
    KERNEL(multiply_bf16, multiply<Brain, index>)  \
    KERNEL(multiply_f32, multiply<float, index>)   \
    KERNEL(multiply_f64, multiply<double, index>)  \
    KERNEL(multiply_c64, multiply<Single, index>)  \
    KERNEL(multiply_c128, multiply<Twice, index>)  \
    KERNEL(sample_f16, sample<Half, index>)        \
    KERNEL(sample_bf16, sample<Brain, index>)      \
    KERNEL(sample_f32, sample<float, index>)       \
    KERNEL(sample_f64, sample<double, index>)      \
    KERNEL(sample_c64, sample<Single, index>)      \
    KERNEL(sample_c128, sample<Twice, index>)

// Compiled in parts, one for each type of indices.
#ifdef FOR_i32
FOR_INDEX(int)
#endif
#ifdef FOR_i64
FOR_INDEX(long long)
#endif
