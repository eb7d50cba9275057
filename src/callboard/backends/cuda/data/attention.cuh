// What all kernels of attention share: their arguments, the sequences of a call, and what a score is.

#include "numbers.cuh"

#ifdef FOR_f16
typedef Half T;
typedef float A;
#elif defined FOR_bf16
typedef Brain T;
typedef float A;
#elif defined FOR_f64
typedef double T;
typedef double A;
#else
typedef float T;
typedef float A;
#endif

struct Steps { i64 batch, head, row; };  // in elements; the last axis has no gaps

struct AttentionArgs {
    const void *q, *k, *v, *out_in, *dout, *lse_in, *bias;
    void *out, *lse, *dq, *dk, *dv, *dbias, *dsink;
    A* delta;  // [batch, heads, seq_q]
    const A *sink, *slopes;
    const int *cu_q, *cu_k, *len_q, *len_k, *tables;
    Steps q_at, k_at, v_at, out_at, dout_at, lse_at, dq_at, dk_at, dv_at, bias_at;
    i64 slopes_batch;
    int batch, heads, kv_heads, dim, dim_v, seq_q, seq_k, rows_q, rows_k;
    int left, right, bottom_right;
    int bias_single, bias_batch, bias_heads, bias_rows;  // single: in A, not in T; the extents that the bias has
    int block_size, max_blocks, pages;
    u32 threshold;  // numbers below it drop
    u32 offset;
    u64 seed;
    double scale, softcap, keep;  // softcap 0: none; keep: the share of the probabilities that stays
};

__device__ __forceinline__ A infinity();
template <typename X> __device__ __forceinline__ X exponential(X x);
template <> __device__ __forceinline__ float exponential<float>(float x) { return expf(x); }
template <> __device__ __forceinline__ double exponential<double>(double x) { return exp(x); }
template <typename X> __device__ __forceinline__ X logarithm(X x);
template <> __device__ __forceinline__ float logarithm<float>(float x) { return logf(x); }
template <> __device__ __forceinline__ double logarithm<double>(double x) { return log(x); }
template <typename X> __device__ __forceinline__ X hyperbolic(X x);
template <> __device__ __forceinline__ float hyperbolic<float>(float x) { return tanhf(x); }
template <> __device__ __forceinline__ double hyperbolic<double>(double x) { return tanh(x); }
__device__ __forceinline__ A infinity() { return (A)__int_as_float(0x7f800000); }

// -- sequences ----------------------------------------------------------------------------------------------------------

struct Span {
    i64 q0, k0;   // its first query and key along the axis of positions
    int nq, nk;   // how many
    int item;     // of the batch axis
    int shift;    // a query's position is its number plus this
};

enum Wrong { CU_Q = 1, CU_K = 2, LEN_Q = 4, LEN_K = 8, TABLES = 16 };  // what was given and does not fit

__device__ __forceinline__ int clamped(int x, int low, int high) { return x < low ? low : x > high ? high : x; }

// Lengths that do not fit are cut here, so that no kernel leaves its operands; attention_check reports them.
__device__ Span span_of(const AttentionArgs& p, int b) {
    Span s;
    s.q0 = s.k0 = 0;
    s.item = b;
    s.nq = p.len_q ? clamped(p.len_q[b], 0, p.rows_q) : p.rows_q;
    s.nk = p.len_k ? clamped(p.len_k[b], 0, p.rows_k) : p.rows_k;
    if (p.cu_q) {
        s.q0 = clamped(p.cu_q[b], 0, p.rows_q);
        s.nq = min(clamped(p.cu_q[b + 1], (int)s.q0, p.rows_q) - (int)s.q0, p.seq_q);
        s.item = 0;
    }
    if (p.cu_k) {
        s.k0 = clamped(p.cu_k[b], 0, p.rows_k);
        s.nk = min(clamped(p.cu_k[b + 1], (int)s.k0, p.rows_k) - (int)s.k0, p.seq_k);
    }
    s.shift = p.bottom_right ? s.nk - s.nq : 0;
    return s;
}

// Where a key (or value) of a sequence lies, in elements.
__device__ __forceinline__ i64 key_at(const AttentionArgs& p, const Steps& at, const Span& s, int b, int head, int j) {
    if (!p.tables) return (p.cu_k ? 0 : (i64)b) * at.batch + head * at.head + (s.k0 + j) * at.row;
    const int page = clamped(p.tables[(i64)b * p.max_blocks + j / p.block_size], 0, p.pages - 1);
    return page * at.batch + head * at.head + (j % p.block_size) * at.row;
}

// -- scores -------------------------------------------------------------------------------------------------------------

struct Score {
    A value;       // -inf where the query does not see the key
    A derivative;  // of the value by the product of query and key
};

__device__ __forceinline__ bool seen(const AttentionArgs& p, const Span& s, int i, int j) {
    const int away = j - (i + s.shift);
    return (p.left < 0 || away >= -p.left) && (p.right < 0 || away <= p.right);
}

__device__ __forceinline__ Score score_of(const AttentionArgs& p, const Span& s, int b, int h, int i, int j, A product) {
    Score found = {-infinity(), (A)0};
    if (i >= s.nq || j >= s.nk || !seen(p, s, i, j)) return found;
    A x = product * (A)p.scale;
    found.derivative = (A)p.scale;
    if (p.softcap != 0) {
        const A t = hyperbolic(x / (A)p.softcap);
        x = t * (A)p.softcap;
        found.derivative *= 1 - t * t;
    }
    if (p.bias) {
        const i64 at = (p.bias_batch > 1 ? b : 0) * p.bias_at.batch + (p.bias_heads > 1 ? h : 0) * p.bias_at.head +
                       (p.bias_rows > 1 ? i : 0) * p.bias_at.row + j;
        x += p.bias_single ? ((const A*)p.bias)[at] : widen<A>(((const T*)p.bias)[at]);
    }
    if (p.slopes) {
        const int away = j - (i + s.shift);
        x -= p.slopes[b * p.slopes_batch + h] * (A)(away < 0 ? -away : away);
    }
    found.value = x;
    return found;
}

// Keys that some query of [first, last) sees: [low, high).
__device__ __forceinline__ void keys_of(const AttentionArgs& p, const Span& s, int first, int last, int& low, int& high) {
    low = p.left < 0 ? 0 : max(0, first + s.shift - p.left);
    high = p.right < 0 ? s.nk : min(s.nk, last + s.shift + p.right);
}

// Philox4x32-10 (Salmon, Moraes, Dror, Shaw, SC'11): whether the probability of a place stays.
__device__ bool stays(const AttentionArgs& p, int b, int h, int i, int j) {
    u32 c0 = (u32)j / 4, c1 = (u32)i, c2 = (u32)(b * p.heads + h), c3 = p.offset;
    u32 k0 = (u32)p.seed, k1 = (u32)(p.seed >> 32);
    for (int round = 0; round < 10; ++round) {
        const u64 p0 = (u64)0xD2511F53u * c0, p1 = (u64)0xCD9E8D57u * c2;
        c0 = (u32)(p1 >> 32) ^ c1 ^ k0;
        c1 = (u32)p1;
        c2 = (u32)(p0 >> 32) ^ c3 ^ k1;
        c3 = (u32)p0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    const u32 word = j % 4 == 0 ? c0 : j % 4 == 1 ? c1 : j % 4 == 2 ? c2 : c3;
    return word >= p.threshold;
}

// -- a warp -------------------------------------------------------------------------------------------------------------

template <typename X>
__device__ __forceinline__ X largest(X x) {
    for (int step = 16; step; step /= 2) x = max(x, __shfl_xor_sync(0xffffffffu, x, step));
    return x;
}
template <typename X>
__device__ __forceinline__ X sum(X x) {
    for (int step = 16; step; step /= 2) x += __shfl_xor_sync(0xffffffffu, x, step);
    return x;
}

const int WARPS = 4, LANES = 32;
const int ROWS = 4;              // of a warp
const int TILE = WARPS * ROWS;   // rows of a block
const int ACROSS = LANES;        // of the other side, one for each lane

// Rows of the tile in shared memory are so far apart that lanes with one each meet in no bank.
__device__ __forceinline__ int padded(int dim) { return dim + (sizeof(T) == 2 ? 2 - dim % 2 : 1); }
