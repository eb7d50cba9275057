// The gradients of attention, as attention.cu computes it. Sums have a fixed order: nothing is added by atomics.

#include "attention_tiles.cuh"

// delta = sum(dout * out) of each query: one warp for each.
extern "C" __global__ void attention_delta(const AttentionArgs p) {
    const int lane = threadIdx.x % LANES;
    const i64 work = (i64)blockIdx.x * WARPS + threadIdx.x / LANES;
    const int i = (int)(work % p.seq_q), h = (int)(work / p.seq_q % p.heads), b = (int)(work / p.seq_q / p.heads);
    if (b >= p.batch) return;
    const Span s = span_of(p, b);
    A found = 0;
    if (i < s.nq) {
        const T* const out = (const T*)p.out_in + s.item * p.out_at.batch + h * p.out_at.head + (s.q0 + i) * p.out_at.row;
        const T* const dout = (const T*)p.dout + s.item * p.dout_at.batch + h * p.dout_at.head + (s.q0 + i) * p.dout_at.row;
        for (int c = lane; c < p.dim_v; c += LANES) found += widen<A>(out[c]) * widen<A>(dout[c]);
    }
    found = sum(found);
    if (lane == 0) p.delta[work] = found;
}

// What a score's gradient is, and the probability as the values met it.
struct Gradient { A score, derivative, weight; };

__device__ __forceinline__ Gradient gradient_of(
    const AttentionArgs& p, const Span& s, int b, int h, int i, int j, A product, A dweight, A lse, A delta) {
    const Score x = score_of(p, s, b, h, i, j, product);
    if (x.value == -infinity() || lse == -infinity()) return {0, 0, 0};
    const A probability = exponential(x.value - lse);
    A weight = probability;
    if (p.threshold) {
        const A factor = stays(p, b, h, i, j) ? 1 / (A)p.keep : 0;
        weight *= factor;
        dweight = factor == 0 ? 0 : dweight * factor;
    }
    const A score = probability * (dweight - delta);
    return {score, score * x.derivative, weight};
}

// Block: TILE queries of one head.
extern "C" __global__ void __launch_bounds__(128) attention_queries(const AttentionArgs p) {
    const Place at = place_of(p.heads, p.seq_q);
    const int b = at.b, h = at.h, first = at.first, kv = h / (p.heads / p.kv_heads);
    const int warp = threadIdx.x / LANES, lane = threadIdx.x % LANES;
    const Span s = span_of(p, b);
    const i64 q_base = s.item * p.q_at.batch + h * p.q_at.head, dout_base = s.item * p.dout_at.batch + h * p.dout_at.head;
    const i64 dq_base = s.item * p.dq_at.batch + h * p.dq_at.head, lse_base = s.item * p.lse_at.batch + h * p.lse_at.head;
    const int end = min(first + TILE, p.cu_q ? s.nq : p.rows_q), last = min(first + TILE, s.nq);
    A* const rows = (A*)shared_memory;
    A* const douts = rows + TILE * p.dim;
    T* const keys = (T*)(douts + TILE * p.dim_v);
    T* const values = keys + ACROSS * padded(p.dim);
    load_rows(rows, p.q, p.dim, last - first, [&](int r) { return q_base + (s.q0 + first + r) * p.q_at.row; });
    load_rows(douts, p.dout, p.dim_v, last - first, [&](int r) { return dout_base + (s.q0 + first + r) * p.dout_at.row; });
    A sums[ROWS][N] = {}, lse[ROWS], delta[ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
        const int i = first + warp * ROWS + r;
        lse[r] = i < s.nq ? ((const A*)p.lse_in)[lse_base + (s.q0 + i) * p.lse_at.row] : -infinity();
        delta[r] = i < s.nq ? p.delta[((i64)b * p.heads + h) * p.seq_q + i] : 0;
    }
    int low, high;
    keys_of(p, s, first, last, low, high);
    for (int j0 = low; j0 < high; j0 += ACROSS) {
        __syncthreads();
        load_tile(keys, p.k, p.dim, high - j0, [&](int r) { return key_at(p, p.k_at, s, b, kv, j0 + r); });
        load_tile(values, p.v, p.dim_v, high - j0, [&](int r) { return key_at(p, p.v_at, s, b, kv, j0 + r); });
        __syncthreads();
        A weights[ROWS], dweights[ROWS];
        products(weights, rows, keys, p.dim);
        products(dweights, douts, values, p.dim_v);
        const int j = j0 + lane;
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
            const int i = first + warp * ROWS + r;
            weights[r] = j < high ? gradient_of(p, s, b, h, i, j, weights[r], dweights[r], lse[r], delta[r]).derivative : 0;
        }
        add_rows(sums, weights, keys, p.dim);
    }
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
        const int i = first + warp * ROWS + r;
        if (i < end) store_row(p.dq, dq_base + (s.q0 + i) * p.dq_at.row, sums[r], (A)1, p.dim);
    }
}

// Block: TILE keys of one head of keys, whose queries are those of all heads of its group.
extern "C" __global__ void __launch_bounds__(128) attention_keys(const AttentionArgs p) {
    const Place at = place_of(p.kv_heads, p.seq_k);
    const int b = at.b, kv = at.h, first = at.first, group = p.heads / p.kv_heads;
    const int warp = threadIdx.x / LANES, lane = threadIdx.x % LANES;
    const Span s = span_of(p, b);
    const int end = min(first + TILE, p.cu_k ? s.nk : p.rows_k), last = min(first + TILE, s.nk);
    A* const keys = (A*)shared_memory;
    A* const values = keys + TILE * p.dim;
    T* const queries = (T*)(values + TILE * p.dim_v);
    T* const douts = queries + ACROSS * padded(p.dim);
    load_rows(keys, p.k, p.dim, last - first, [&](int r) { return key_at(p, p.k_at, s, b, kv, first + r); });
    load_rows(values, p.v, p.dim_v, last - first, [&](int r) { return key_at(p, p.v_at, s, b, kv, first + r); });
    A dk[ROWS][N] = {}, dv[ROWS][N] = {};
    // Queries that see some key of [first, last): positions from first - right to last - 1 + left.
    const int low = p.right < 0 ? 0 : max(0, first - p.right - s.shift);
    const int high = p.left < 0 ? s.nq : min(s.nq, last + p.left - s.shift);
    for (int h = kv * group; h < (kv + 1) * group; ++h) {
        const i64 q_base = s.item * p.q_at.batch + h * p.q_at.head, dout_base = s.item * p.dout_at.batch + h * p.dout_at.head;
        const i64 lse_base = s.item * p.lse_at.batch + h * p.lse_at.head;
        for (int i0 = low; i0 < high; i0 += ACROSS) {
            __syncthreads();
            load_tile(queries, p.q, p.dim, high - i0, [&](int r) { return q_base + (s.q0 + i0 + r) * p.q_at.row; });
            load_tile(douts, p.dout, p.dim_v, high - i0, [&](int r) { return dout_base + (s.q0 + i0 + r) * p.dout_at.row; });
            __syncthreads();
            A weights[ROWS], scores[ROWS];
            products(scores, keys, queries, p.dim);
            products(weights, values, douts, p.dim_v);
            const int i = i0 + lane;
            const A lse = i < high ? ((const A*)p.lse_in)[lse_base + (s.q0 + i) * p.lse_at.row] : -infinity();
            const A delta = i < high ? p.delta[((i64)b * p.heads + h) * p.seq_q + i] : 0;
#pragma unroll
            for (int r = 0; r < ROWS; ++r) {
                const int j = first + warp * ROWS + r;
                Gradient g = {0, 0, 0};
                if (i < high && j < last) g = gradient_of(p, s, b, h, i, j, scores[r], weights[r], lse, delta);
                scores[r] = g.derivative;
                weights[r] = g.weight;
            }
            add_rows(dk, scores, queries, p.dim);
            add_rows(dv, weights, douts, p.dim_v);
        }
    }
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
        const int j = first + warp * ROWS + r;
        if (j >= end) continue;
        const i64 item = p.cu_k ? 0 : b;
        store_row(p.dk, item * p.dk_at.batch + kv * p.dk_at.head + (s.k0 + j) * p.dk_at.row, dk[r], (A)1, p.dim);
        store_row(p.dv, item * p.dv_at.batch + kv * p.dv_at.head + (s.k0 + j) * p.dv_at.row, dv[r], (A)1, p.dim_v);
    }
}

// Gradients of packed tokens behind the last sequence are 0; one warp for each token.
extern "C" __global__ void attention_blank_gradients(const AttentionArgs p) {
    const int lane = threadIdx.x % LANES;
    const int row = blockIdx.x * WARPS + threadIdx.x / LANES;
    if (row < p.rows_q && row >= p.cu_q[p.batch])
        for (int h = 0; h < p.heads; ++h)
            for (int c = lane; c < p.dim; c += LANES)
                ((T*)p.dq)[h * p.dq_at.head + row * p.dq_at.row + c] = narrow<T>((A)0);
    if (row < p.rows_k && row >= p.cu_k[p.batch])
        for (int h = 0; h < p.kv_heads; ++h) {
            for (int c = lane; c < p.dim; c += LANES)
                ((T*)p.dk)[h * p.dk_at.head + row * p.dk_at.row + c] = narrow<T>((A)0);
            for (int c = lane; c < p.dim_v; c += LANES)
                ((T*)p.dv)[h * p.dv_at.head + row * p.dv_at.row + c] = narrow<T>((A)0);
        }
}

// A thread for each element of the bias, which adds the gradients of all scores that have it.
extern "C" __global__ void attention_bias(const AttentionArgs p) {
    const i64 work = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    const i64 count = (i64)p.bias_batch * p.bias_heads * p.bias_rows * p.seq_k;
    if (work >= count) return;
    const int j = (int)(work % p.seq_k);
    i64 rest = work / p.seq_k;
    const int row = (int)(rest % p.bias_rows);
    rest /= p.bias_rows;
    const int head = (int)(rest % p.bias_heads), item = (int)(rest / p.bias_heads);
    double total = 0;
    for (int b = item; b < (p.bias_batch > 1 ? item + 1 : p.batch); ++b) {
        const Span s = span_of(p, b);
        if (j >= s.nk) continue;
        for (int h = head; h < (p.bias_heads > 1 ? head + 1 : p.heads); ++h) {
            const int kv = h / (p.heads / p.kv_heads);
            const T* const k = (const T*)p.k + key_at(p, p.k_at, s, b, kv, j);
            const T* const v = (const T*)p.v + key_at(p, p.v_at, s, b, kv, j);
            for (int i = row; i < (p.bias_rows > 1 ? min(row + 1, s.nq) : s.nq); ++i) {
                if (!seen(p, s, i, j)) continue;
                const T* const q = (const T*)p.q + b * p.q_at.batch + h * p.q_at.head + i * p.q_at.row;
                const T* const dout = (const T*)p.dout + b * p.dout_at.batch + h * p.dout_at.head + i * p.dout_at.row;
                A product = 0, dweight = 0;
                for (int c = 0; c < p.dim; ++c) product += widen<A>(q[c]) * widen<A>(k[c]);
                for (int c = 0; c < p.dim_v; ++c) dweight += widen<A>(dout[c]) * widen<A>(v[c]);
                const A lse = ((const A*)p.lse_in)[b * p.lse_at.batch + h * p.lse_at.head + i * p.lse_at.row];
                const A delta = p.delta[((i64)b * p.heads + h) * p.seq_q + i];
                total += gradient_of(p, s, b, h, i, j, product, dweight, lse, delta).score;
            }
        }
    }
    if (p.bias_single)
        ((A*)p.dbias)[work] = (A)total;
    else
        ((T*)p.dbias)[work] = narrow<T>((A)total);
}

// A block for each head.
extern "C" __global__ void attention_sink(const AttentionArgs p) {
    const int h = blockIdx.x;
    double total = 0;
    for (int b = 0; b < p.batch; ++b) {
        const Span s = span_of(p, b);
        const A* const lse = (const A*)p.lse_in + s.item * p.lse_at.batch + h * p.lse_at.head + s.q0 * p.lse_at.row;
        const A* const delta = p.delta + ((i64)b * p.heads + h) * p.seq_q;
        for (int i = threadIdx.x; i < s.nq; i += blockDim.x) {
            const A x = lse[i * p.lse_at.row];
            if (x != -infinity()) total -= (double)exponential(p.sink[h] - x) * (double)delta[i];
        }
    }
    double* const parts = shared_memory;
    total = sum(total);
    if (threadIdx.x % LANES == 0) parts[threadIdx.x / LANES] = total;
    __syncthreads();
    if (threadIdx.x) return;
    for (int w = 1; w < WARPS; ++w) total += parts[w];
    ((A*)p.dsink)[h] = (A)total;
}

