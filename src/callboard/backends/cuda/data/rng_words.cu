// Random words as they are, of 4 or 8 bytes, and indices by weight; and where the lanes of XORWOW begin.

#include "rng_fills.cuh"

FILL(bits_4, Bits<u32>)
FILL(bits_8, Bits<u64>)
FILL(discrete_4, Discrete<u32>)
FILL(discrete_8, Discrete<u64>)
ABREAST(bits_4, Bits<u32>)
ABREAST(bits_8, Bits<u64>)

// A state times a power of the step's matrix, over GF(2), by a warp: a thread has five of the 160 columns.
__device__ inline void advance(const u32* matrix, u32 (&v)[5]) {
    const u32 thread = threadIdx.x % 32;
    u32 sum[5] = {0, 0, 0, 0, 0};
#pragma unroll
    for (int word = 0; word < 5; ++word) {
        const u32 mask = 0u - (v[word] >> thread & 1);
#pragma unroll
        for (int i = 0; i < 5; ++i) sum[i] ^= matrix[160 * i + 32 * word + thread] & mask;
    }
#pragma unroll
    for (int i = 0; i < 5; ++i) {
#pragma unroll
        for (int distance = 16; distance; distance /= 2) sum[i] ^= __shfl_xor_sync(0xFFFFFFFFu, sum[i], distance);
        v[i] = sum[i];
    }
}

__device__ inline void leave(const FillArgs& a, u32 segment, u32 lane, const u32 (&v)[5], u32 counter) {
    u32* const state = (u32*)a.words + (u64)segment * 6 * LANES + lane;
    if (threadIdx.x % 32) return;
#pragma unroll
    for (int i = 0; i < 5; ++i) state[i * LANES] = v[i];
    state[5 * LANES] = counter;
}

const int MATRIX = 5 * 160;
const int ROWS = 52;  // matrices of 1, 2, 4 ... steps; behind them those of 1, 2, 4 ... distances between lanes

// A warp for each lane: its state where the fill begins.
extern "C" __global__ void xorwow_begin(const FillArgs a) {
    const u32 lane = (blockIdx.x * blockDim.x + threadIdx.x) / 32;
    const u32* const matrices = (const u32*)a.table;
    const bool seeded = a.shift;
    const u64 seed = seeded ? a.seed + 3133713ull * lane : a.seed, row = a.position / LANES;
    const u32 p = 1099087573u * ((u32)seed ^ 0xAAD26B49u), q = 2591861531u * ((u32)(seed >> 32) ^ 0xF7DCEFDDu);
    u32 v[5] = {123456789u + p, 362436069u ^ p, 521288629u + q, 88675123u ^ q, 5783321u + p};
    if (!seeded) {
        for (int i = 0; i < 12; ++i) if (lane >> i & 1) advance(matrices + (ROWS + i) * MATRIX, v);
    }
    for (int i = 0; i < ROWS; ++i) if (row >> i & 1) advance(matrices + i * MATRIX, v);
    leave(a, 0, lane, v, 6615241u + p + q + (u32)row * STEP);
}

// A warp for each lane of each further segment, 2**bits rows after the one before.
extern "C" __global__ void xorwow_spread(const FillArgs a) {
    const u32 warp = (blockIdx.x * blockDim.x + threadIdx.x) / 32, segment = 1 + warp / LANES, lane = warp % LANES;
    const u32* const matrices = (const u32*)a.table;
    const u32* const first = a.words + lane;
    u32 v[5];
#pragma unroll
    for (int i = 0; i < 5; ++i) v[i] = first[i * LANES];
    for (int i = 0; segment >> i; ++i) if (segment >> i & 1) advance(matrices + (a.bits + i) * MATRIX, v);
    leave(a, segment, lane, v, first[5 * LANES] + (segment << a.bits) * STEP);
}
