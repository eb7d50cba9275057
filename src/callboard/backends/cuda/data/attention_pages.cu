// Pages of keys and values: what is written to them; lengths and tables, looked at before they are used; partial results.

#include "attention.cuh"

// -- lengths ------------------------------------------------------------------------------------------------------------

struct CheckArgs {
    AttentionArgs call;
    u32* verdict;  // bits of Wrong
    int *len_q, *len_k;        // the lengths for cuDNN, cut to what there is; null where it is not asked
    int* tables;               // the page tables, likewise
    int *off_q, *off_k, *off_v, *off_o, *off_lse;  // where each packed sequence begins, in elements
};

// Any grid: a long table is looked at by several blocks, since what it costs is waiting for memory.
extern "C" __global__ void attention_check(const CheckArgs c) {
    const AttentionArgs& p = c.call;
    const int me = blockIdx.x * blockDim.x + threadIdx.x, all = gridDim.x * blockDim.x;
    u32 wrong = 0;
    for (int b = me; b <= p.batch; b += all) {
        const bool one = b < p.batch;
        if (p.cu_q) {
            const int begin = p.cu_q[b], end = one ? p.cu_q[b + 1] : begin;
            if (begin < 0 || end < begin || end > p.rows_q || end - begin > p.seq_q || (b == 0 && begin)) wrong |= CU_Q;
        }
        if (p.cu_k) {
            const int begin = p.cu_k[b], end = one ? p.cu_k[b + 1] : begin;
            if (begin < 0 || end < begin || end > p.rows_k || end - begin > p.seq_k || (b == 0 && begin)) wrong |= CU_K;
        }
        if (one && p.len_q && (p.len_q[b] < 0 || p.len_q[b] > p.rows_q)) wrong |= LEN_Q;
        if (one && p.len_k && (p.len_k[b] < 0 || p.len_k[b] > p.rows_k)) wrong |= LEN_K;
        if (one && c.len_q) {
            const Span s = span_of(p, b);
            c.len_q[b] = s.nq;
            c.len_k[b] = s.nk;
        }
        if (c.off_q && p.cu_q) {
            const int at = clamped(p.cu_q[b], 0, p.rows_q);
            c.off_q[b] = at * (int)p.q_at.row;
            c.off_o[b] = at * (int)p.out_at.row;
            c.off_lse[b] = at * p.heads;
        }
        if (c.off_k && p.cu_k) {
            const int at = clamped(p.cu_k[b], 0, p.rows_k);
            c.off_k[b] = at * (int)p.k_at.row;
            c.off_v[b] = at * (int)p.v_at.row;
        }
    }
    if (p.tables)
        for (int at = me; at < p.batch * p.max_blocks; at += all) {
            const int b = at / p.max_blocks, used = (clamped(p.len_k[b], 0, p.rows_k) + p.block_size - 1) / p.block_size;
            const int page = p.tables[at];
            const bool bad = page < 0 || page >= p.pages;
            if (at % p.max_blocks < used && bad) wrong |= TABLES;
            if (c.tables) c.tables[at] = bad ? 0 : page;
        }
    if (wrong) atomicOr(c.verdict, wrong);
}

// -- pages --------------------------------------------------------------------------------------------------------------

struct PageArgs {
    const void *k, *v;
    void *k_pages, *v_pages;
    const i64* slots;
    const int *sources, *targets;
    u32* verdict;  // 1: something was beyond the pages
    i64 count;     // tokens, or pages to copy
    Steps k_at, v_at;              // of new ones: row, head, and batch for the step within a row
    Steps k_pages_at, v_pages_at;  // batch: from page to page; row: from position to position
    int heads, dim, dim_v, block_size, pages;
};

template <typename U>
__device__ void append(const PageArgs& p) {
    for (i64 token = blockIdx.x; token < p.count; token += gridDim.x) {
        const i64 slot = p.slots[token];
        if (slot < 0) continue;
        if (slot >= (i64)p.pages * p.block_size) {
            if (threadIdx.x == 0) atomicOr(p.verdict, 1u);
            continue;
        }
        const i64 page = slot / p.block_size, row = slot % p.block_size;
        for (int at = threadIdx.x; at < p.heads * p.dim; at += blockDim.x) {
            const int h = at / p.dim, c = at % p.dim;
            ((U*)p.k_pages)[page * p.k_pages_at.batch + row * p.k_pages_at.row + h * p.k_pages_at.head + c] =
                ((const U*)p.k)[token * p.k_at.row + h * p.k_at.head + c * p.k_at.batch];
        }
        for (int at = threadIdx.x; at < p.heads * p.dim_v; at += blockDim.x) {
            const int h = at / p.dim_v, c = at % p.dim_v;
            ((U*)p.v_pages)[page * p.v_pages_at.batch + row * p.v_pages_at.row + h * p.v_pages_at.head + c] =
                ((const U*)p.v)[token * p.v_at.row + h * p.v_at.head + c * p.v_at.batch];
        }
    }
}

template <typename U>
__device__ void copy_half(U* pages, const Steps& at, i64 from, i64 to, int rows, int heads, int dim) {
    for (int item = threadIdx.x; item < rows * heads * dim; item += blockDim.x) {
        const int c = item % dim, h = item / dim % heads, row = item / dim / heads;
        const i64 place = row * at.row + h * at.head + c;
        pages[to * at.batch + place] = pages[from * at.batch + place];
    }
}

template <typename U>
__device__ void copy(const PageArgs& p) {
    for (i64 pair = blockIdx.x; pair < p.count; pair += gridDim.x) {
        const int from = p.sources[pair], to = p.targets[pair];
        if (from < 0 || to < 0 || from >= p.pages || to >= p.pages) {
            if (threadIdx.x == 0) atomicOr(p.verdict, 1u);
            continue;
        }
        copy_half((U*)p.k_pages, p.k_pages_at, from, to, p.block_size, p.heads, p.dim);
        copy_half((U*)p.v_pages, p.v_pages_at, from, to, p.block_size, p.heads, p.dim_v);
    }
}

extern "C" __global__ void attention_append_2(const PageArgs p) { append<u16>(p); }
extern "C" __global__ void attention_append_4(const PageArgs p) { append<u32>(p); }
extern "C" __global__ void attention_append_8(const PageArgs p) { append<u64>(p); }
extern "C" __global__ void attention_copy_2(const PageArgs p) { copy<u16>(p); }
extern "C" __global__ void attention_copy_4(const PageArgs p) { copy<u32>(p); }
extern "C" __global__ void attention_copy_8(const PageArgs p) { copy<u64>(p); }

// -- partial results ----------------------------------------------------------------------------------------------------

const int MOST_PARTS = 32;

struct MergeArgs {
    const void* outs[MOST_PARTS];
    const A* lses[MOST_PARTS];
    Steps outs_at[MOST_PARTS], lses_at[MOST_PARTS];
    void* out;
    A* lse;
    Steps out_at, lse_at;
    int parts, batch, heads, rows, dim;
};

// One warp for each query and head.
extern "C" __global__ void attention_merge(const MergeArgs p) {
    const int lane = threadIdx.x % LANES;
    const i64 work = (i64)blockIdx.x * WARPS + threadIdx.x / LANES;
    const i64 row = work % p.rows, h = work / p.rows % p.heads, b = work / p.rows / p.heads;
    if (b >= p.batch) return;
    A logs = -infinity();
    if (lane < p.parts) {
        const Steps& at = p.lses_at[lane];
        logs = p.lses[lane][b * at.batch + h * at.head + row * at.row];
    }
    const A top = largest(logs), base = top == -infinity() ? 0 : top;
    const A weight = logs == -infinity() ? 0 : exponential(logs - base), total = sum(weight);
    if (lane == 0) p.lse[b * p.lse_at.batch + h * p.lse_at.head + row * p.lse_at.row] = base + logarithm(total);
    for (int c0 = 0; c0 < p.dim; c0 += LANES) {
        A found = 0;
        for (int part = 0; part < p.parts; ++part) {
            const A x = __shfl_sync(0xffffffffu, weight, part);
            if (x == 0 || c0 + lane >= p.dim) continue;
            const Steps& at = p.outs_at[part];
            found += x * widen<A>(((const T*)p.outs[part])[b * at.batch + h * at.head + row * at.row + c0 + lane]);
        }
        if (c0 + lane < p.dim)
            ((T*)p.out)[b * p.out_at.batch + h * p.out_at.head + row * p.out_at.row + c0 + lane] =
                narrow<T>(total == 0 ? (A)0 : found / total);
    }
}
