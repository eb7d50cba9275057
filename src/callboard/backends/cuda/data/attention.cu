// Attention for whatever dtype, head dim, mask and layout: correct first, with CUDA cores only.
// FlashAttention-2 (Dao, arXiv:2307.08691): scores live in registers and are never stored.

#include "attention_tiles.cuh"

// Block: TILE queries of one head. 
extern "C" __global__ void __launch_bounds__(128) attention_forward(const AttentionArgs p) {
    const Place at = place_of(p.heads, p.seq_q);
    const int b = at.b, h = at.h, first = at.first, kv = h / (p.heads / p.kv_heads);
    const int warp = threadIdx.x / LANES, lane = threadIdx.x % LANES;
    const Span s = span_of(p, b);
    const i64 q_base = s.item * p.q_at.batch + h * p.q_at.head, out_base = s.item * p.out_at.batch + h * p.out_at.head;
    const i64 lse_base = s.item * p.lse_at.batch + h * p.lse_at.head;
    // Rows of a padded sequence behind its last query are written, too; those of packed ones are others'.
    const int end = min(first + TILE, p.cu_q ? s.nq : p.rows_q), last = min(first + TILE, s.nq);
    A* const rows = (A*)shared_memory;
    T* const keys = (T*)(rows + TILE * p.dim);
    T* const values = keys + ACROSS * padded(p.dim);
    load_rows(rows, p.q, p.dim, last - first, [&](int r) { return q_base + (s.q0 + first + r) * p.q_at.row; });

    A sums[ROWS][N] = {}, top[ROWS], total[ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
        top[r] = p.sink ? p.sink[h] : -infinity();
        total[r] = top[r] == -infinity() ? 0 : 1;
    }
    int low, high;
    keys_of(p, s, first, last, low, high);
    for (int j0 = low; j0 < high; j0 += ACROSS) {
        __syncthreads();
        load_tile(keys, p.k, p.dim, high - j0, [&](int r) { return key_at(p, p.k_at, s, b, kv, j0 + r); });
        load_tile(values, p.v, p.dim_v, high - j0, [&](int r) { return key_at(p, p.v_at, s, b, kv, j0 + r); });
        __syncthreads();
        A weights[ROWS];
        products(weights, rows, keys, p.dim);
        const int j = j0 + lane;
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
            const int i = first + warp * ROWS + r;
            const A x = j < high ? score_of(p, s, b, h, i, j, weights[r]).value : -infinity();
            const A above = max(top[r], largest(x)), base = above == -infinity() ? 0 : above;
            A weight = x == -infinity() ? 0 : exponential(x - base);
            const A shrink = exponential(top[r] - base);
            total[r] = total[r] * shrink + sum(weight);
            top[r] = above;
            if (p.threshold && weight != 0 && !stays(p, b, h, i, j)) weight = 0;
            weights[r] = weight;
#pragma unroll
            for (int n = 0; n < N; ++n) sums[r][n] *= shrink;
        }
        add_rows(sums, weights, values, p.dim_v);
    }
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
        const int i = first + warp * ROWS + r;
        if (i >= end) continue;
        const bool none = i >= s.nq || total[r] == 0;
        const A factor = none ? 0 : 1 / (total[r] * (A)p.keep);
        if (none)
#pragma unroll
            for (int n = 0; n < N; ++n) sums[r][n] = 0;
        store_row(p.out, out_base + (s.q0 + i) * p.out_at.row, sums[r], factor, p.dim_v);
        if (lane == 0)
            ((A*)p.lse)[lse_base + (s.q0 + i) * p.lse_at.row] = none ? -infinity() : top[r] + logarithm(total[r]);
    }
}

// Packed queries behind the last sequence: one warp for each token and head.
extern "C" __global__ void attention_blank(const AttentionArgs p) {
    const int lane = threadIdx.x % LANES;
    const i64 work = (i64)blockIdx.x * WARPS + threadIdx.x / LANES;
    const int row = (int)(work / p.heads), h = (int)(work % p.heads);
    if (row >= p.rows_q || row < p.cu_q[p.batch]) return;
    for (int c = lane; c < p.dim_v; c += LANES)
        ((T*)p.out)[h * p.out_at.head + row * p.out_at.row + c] = narrow<T>((A)0);
    if (lane == 0 && p.lse) ((A*)p.lse)[h * p.lse_at.head + row * p.lse_at.row] = -infinity();
}

// A sink joins what was computed without one: one warp for each query and head. exp(sink) is one more summand of the
// sum whose logarithm lse is, and no value belongs to it.
extern "C" __global__ void attention_sinks(const AttentionArgs p) {
    const int lane = threadIdx.x % LANES;
    const i64 work = (i64)blockIdx.x * WARPS + threadIdx.x / LANES;
    const int i = (int)(work % p.seq_q), h = (int)(work / p.seq_q % p.heads), b = (int)(work / p.seq_q / p.heads);
    if (b >= p.batch) return;
    const Span s = span_of(p, b);
    if (i >= s.nq) return;
    A* const at = (A*)p.lse + s.item * p.lse_at.batch + h * p.lse_at.head + (s.q0 + i) * p.lse_at.row;
    const A sink = p.sink[h], before = *at, top = max(sink, before);
    const A all = top == -infinity() ? top : top + logarithm(exponential(sink - top) + exponential(before - top));
    const A factor = before == -infinity() ? 0 : exponential(before - all);
    T* const out = (T*)p.out + s.item * p.out_at.batch + h * p.out_at.head + (s.q0 + i) * p.out_at.row;
    for (int c = lane; c < p.dim_v; c += LANES) out[c] = narrow<T>(widen<A>(out[c]) * factor);
    __syncwarp();
    if (lane == 0) *at = all;
}
