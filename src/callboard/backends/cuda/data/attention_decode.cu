// Decoding: one query of each sequence over keys and values in pages, with tensor cores. What it costs is reading them:
// each number is read once, 16 bytes at a time, and stays in the registers of the lane that read it. A warp computes a
// part of a sequence for a head of keys; parts are joined by their log-sum-exps (Flash-Decoding: Dao, Haziza, Massa,
// Sizov, 2023). Neighbouring warps have the same keys of neighbouring heads, which are neighbours in memory.
//
// The query heads that share a head of keys are the columns of both products: S = K Q for KEYS keys, O = V' P. So a lane
// holds scores and sums of the same two heads, and sums shrink without an exchange. Dims and keys may stand in any order
// as long as both factors have it: lane (g, t) reads what the layout of the instruction wants from rows of its own.

#include "attention.cuh"

#ifndef D
#define D 128  // head dim: 64 or 128
#endif

const int HEADS = 8, KEYS = 16;       // of a product
const u32 ALL = 0xffffffffu;
const float LOG2E = 1.4426950408889634f, LN2 = 0.6931471805599453f;

struct DecodeArgs {
    AttentionArgs call;
    u32* verdict;     // bits of Wrong
    float* outs;      // of each part: [parts, batch, heads, D], then [parts, batch, heads] log-sum-exps
    int parts, keys;  // of the longest sequence, and of a part
};

struct alignas(16) Quad { u32 x[4]; };  // 8 numbers

#ifndef EMULATED
__device__ __forceinline__ void read(u32 (&x)[4], const void* at) {  // of pages: once, so past the first cache
    asm volatile("ld.global.nc.L1::no_allocate.L2::256B.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3]) : "l"(at));
}
// c += a b: 16x16 by 16x8.
__device__ __forceinline__ void multiply(float (&c)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
#ifdef FOR_bf16
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                 "{%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
#else
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                 "{%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
#endif
}
__device__ __forceinline__ u32 transposed(u32 x) {  // an 8x8 matrix of halves, two of a row in each lane
    u32 y;
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(y) : "r"(x));
    return y;
}
#endif

__device__ __forceinline__ Quad taken(bool there, const T* at) {  // what is not seen may be NaN
    Quad q = {{0, 0, 0, 0}};
    if (there) read(q.x, at);
    return q;
}
__device__ __forceinline__ u32 both(float low, float high) {
    return narrow<T>(low).bits | (u32)narrow<T>(high).bits << 16;
}
// Of the 8 lanes that have this lane's heads.
__device__ __forceinline__ float across_largest(float x) {
    for (int step = 4; step < LANES; step *= 2) x = max(x, __shfl_xor_sync(ALL, x, step));
    return x;
}
__device__ __forceinline__ float across_sum(float x) {
    for (int step = 4; step < LANES; step *= 2) x += __shfl_xor_sync(ALL, x, step);
    return x;
}

extern "C" __global__ void __launch_bounds__(128, 3) attention_decode(const DecodeArgs c) {
    const AttentionArgs& p = c.call;
    const int group = p.heads / p.kv_heads, columns = (group + HEADS - 1) / HEADS;
    const int lane = threadIdx.x % LANES, g = lane / 4, t = lane % 4;
    int rest = blockIdx.x * WARPS + threadIdx.x / LANES;
    const int first = rest % columns * HEADS;  // head of the group
    rest /= columns;
    const int kv = rest % p.kv_heads;
    rest /= p.kv_heads;
    const int part = rest % c.parts, b = rest / c.parts;
    if (b >= p.batch) return;
    const int given = p.len_k[b], length = clamped(given, 0, p.rows_k);
    u32 wrong = given == length ? 0 : LEN_K;
    const int begin = part * c.keys, end = min(length, begin + c.keys);

    Quad query[D / 32];  // of head g: numbers 32 j + 8 t and the next 7
#pragma unroll
    for (int j = 0; j < D / 32; ++j) {
        const i64 at = b * p.q_at.batch + (kv * group + first + g) * p.q_at.head + 32 * j + 8 * t;
        query[j] = taken(first + g < group, (const T*)p.q + at);
    }
    float sums[D / 16][4] = {}, top[2] = {-infinity(), -infinity()}, total[2] = {0, 0};  // of heads 2 t and 2 t + 1
    const float scale = (float)(p.scale * LOG2E);

    for (int start = begin; start < end; start += LANES * KEYS) {
        const int mine = start + lane * KEYS;  // the tile whose page this lane looks up
        int page = 0;
        if (mine < end) {
            page = p.tables[(i64)b * p.max_blocks + mine / p.block_size];
            if (page < 0 || page >= p.pages) wrong |= TABLES, page = 0;
        }
        for (int n = 0; n < LANES; ++n) {
            const int j0 = start + n * KEYS;
            if (j0 >= end) break;
            const i64 at = __shfl_sync(ALL, page, n);
            const int row = j0 % p.block_size, left = end - j0;
            const T* const k = (const T*)p.k + at * p.k_at.batch + kv * p.k_at.head + row * p.k_at.row;
            const T* const v = (const T*)p.v + at * p.v_at.batch + kv * p.v_at.head + row * p.v_at.row;
            Quad keys[2][D / 32], values[4][D / 64];
#pragma unroll
            for (int i = 0; i < 2; ++i)
#pragma unroll
                for (int j = 0; j < D / 32; ++j) {
                    const int r = g + 8 * i;
                    keys[i][j] = taken(r < left, k + r * p.k_at.row + 32 * j + 8 * t);
                }
#pragma unroll
            for (int i = 0; i < 4; ++i)
#pragma unroll
                for (int j = 0; j < D / 64; ++j) {
                    const int r = 2 * t + i % 2 + 8 * (i / 2);
                    values[i][j] = taken(r < left, v + r * p.v_at.row + 64 * j + 8 * g);
                }

            float even[4] = {}, odd[4] = {};
#pragma unroll
            for (int j = 0; j < D / 32; ++j) {
                const u32 *x = keys[0][j].x, *y = keys[1][j].x, *q = query[j].x;
                multiply(even, x[0], y[0], x[1], y[1], q[0], q[1]);
                multiply(odd, x[2], y[2], x[3], y[3], q[2], q[3]);
            }
            float weights[4], shrink[2];  // of key g: heads 2 t and 2 t + 1; of key g + 8
#pragma unroll
            for (int i = 0; i < 4; ++i)
                weights[i] = g + i / 2 * 8 < left ? (even[i] + odd[i]) * scale : -infinity();
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                const float above = max(top[i], across_largest(max(weights[i], weights[i + 2])));
                const float base = above == -infinity() ? 0 : above;
                shrink[i] = exp2f(top[i] - base);
                weights[i] = exp2f(weights[i] - base);
                weights[i + 2] = exp2f(weights[i + 2] - base);
                total[i] = total[i] * shrink[i] + weights[i] + weights[i + 2];
                top[i] = above;
            }
            const u32 b0 = transposed(both(weights[0], weights[1])), b1 = transposed(both(weights[2], weights[3]));
#pragma unroll
            for (int m = 0; m < D / 16; ++m) {  // number u of a lane is dim 64 (u / 8) + 8 g + u % 8
                u32 a[4];
#pragma unroll
                for (int i = 0; i < 4; ++i) {
                    const int u = m + i % 2 * (D / 16), two = i / 2 * 2;
                    const u32 x = values[two][u / 8].x[u % 8 / 2], y = values[two + 1][u / 8].x[u % 8 / 2];
                    a[i] = __byte_perm(x, y, u % 2 ? 0x7632 : 0x5410);
                    sums[m][i] *= shrink[i % 2];
                }
                multiply(sums[m], a[0], a[1], a[2], a[3], b0, b1);
            }
        }
    }
    if (wrong) atomicOr(c.verdict, wrong);
    const int used = max(1, (length + c.keys - 1) / c.keys);
    if (part >= used) return;

    const i64 heads = (i64)p.batch * p.heads, h0 = kv * group + first;  // of columns: h0 and the next
    float* const logs = c.outs + c.parts * heads * D;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        const float whole = across_sum(total[i]), factor = whole == 0 ? 0 : 1 / whole;
        if (first + 2 * t + i >= group) continue;
        const float lse = whole == 0 ? -infinity() : top[i] * LN2 + logf(whole);
        const i64 h = h0 + 2 * t + i, place = part * heads + b * (i64)p.heads + h;
        T* const out = (T*)p.out + b * p.out_at.batch + h * p.out_at.head;
#pragma unroll
        for (int u = 0; u < D / 8; u += 4) {
            Quad four;
#pragma unroll
            for (int n = 0; n < 4; ++n) {
                const int m = (u + n) % (D / 16), j = (u + n) / (D / 16);
                four.x[n] = __float_as_uint(sums[m][2 * j + i] * factor);
            }
            const int dim = 64 * (u / 8) + 8 * g + u % 8;
            if (used > 1)
                *(Quad*)(c.outs + place * D + dim) = four;
            else
#pragma unroll
                for (int n = 0; n < 4; ++n) out[dim + n] = narrow<T>(__uint_as_float(four.x[n]));
        }
        if (g) continue;
        if (used > 1)
            logs[place] = lse;
        else
            ((float*)p.lse)[b * p.lse_at.batch + h * p.lse_at.head] = lse;
    }
}

// Block: a head of a sequence; warps take parts by turns.
extern "C" __global__ void __launch_bounds__(128) attention_join(const DecodeArgs c) {
    const AttentionArgs& p = c.call;
    const int b = blockIdx.x / p.heads, h = blockIdx.x % p.heads;
    const int warp = threadIdx.x / LANES, lane = threadIdx.x % LANES;
    const int used = (clamped(p.len_k[b], 0, p.rows_k) + c.keys - 1) / c.keys;
    if (used <= 1) return;  // it is stored
    const i64 heads = (i64)p.batch * p.heads, place = b * (i64)p.heads + h;
    const float *const outs = c.outs + place * D + lane, *const logs = c.outs + c.parts * heads * D + place;
    float base = -infinity(), weight = 0, sums[D / LANES] = {};
    for (int i = lane; i < used; i += LANES) base = max(base, logs[i * heads]);
    base = largest(base);
#pragma unroll 8
    for (int i = warp; i < used; i += WARPS) {
        const float share = base == -infinity() ? 0 : expf(logs[i * heads] - base);
        weight += share;
#pragma unroll
        for (int n = 0; n < D / LANES; ++n) sums[n] += share * outs[i * heads * D + n * LANES];
    }
    __shared__ float weights[WARPS], found[WARPS][D];
    if (lane == 0) weights[warp] = weight;
#pragma unroll
    for (int n = 0; n < D / LANES; ++n) found[warp][n * LANES + lane] = sums[n];
    __syncthreads();
    weight = 0;
    for (int w = 0; w < WARPS; ++w) weight += weights[w];
    if (threadIdx.x == 0)
        ((float*)p.lse)[b * p.lse_at.batch + h * p.lse_at.head] = weight == 0 ? -infinity() : base + logf(weight);
    if (threadIdx.x >= D) return;
    float sum = 0;
    for (int w = 0; w < WARPS; ++w) sum += found[w][threadIdx.x];
    T* const out = (T*)p.out + b * p.out_at.batch + h * p.out_at.head;
    out[threadIdx.x] = narrow<T>(weight == 0 ? 0.f : sum / weight);
}
