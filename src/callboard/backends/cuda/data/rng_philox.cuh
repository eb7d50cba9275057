// Random words and what they are made into. Philox4x32-10 and Philox4x64-10 (Salmon, Moraes, Dror, Shaw, "Parallel random
// numbers: as easy as 1, 2, 3", SC'11), their counters laid out as callboard.kernel.rng.streams says. Products and sums
// whose bits are promised use the _rn intrinsics: the compiler must not fuse them.

#include "numbers.cuh"

struct FillArgs {
    char* out;
    const u32* words;    // of "turn" kernels; may be out
    const double* table; // of "discrete": sums of the weights
    i64 count;           // elements
    u64 seed, position;  // position: word of the first element
    double a, b, top;    // of the distribution
    i64 size;            // of the table, or dimensions
    u64 low, span;       // of integers; span 0 is 2**64
    int dtype, bits, shift;
};

const int THREADS = 256;  // of a block
const double INV_53 = 1.0 / 9007199254740992.0;
const float INV_32 = 1.0f / 4294967296.0f;

// -- generators -------------------------------------------------------------------------------------------------------

struct Words4 { u32 w[4]; };

__device__ inline Words4 philox_4x32(u32 c0, u32 c1, u32 c2, u32 c3, u64 seed) {
    u32 k0 = (u32)seed, k1 = (u32)(seed >> 32);
#pragma unroll
    for (int round = 0; round < 10; ++round) {
        const u64 p0 = (u64)0xD2511F53u * c0, p1 = (u64)0xCD9E8D57u * c2;
        c0 = (u32)(p1 >> 32) ^ c1 ^ k0;
        c1 = (u32)p1;
        c2 = (u32)(p0 >> 32) ^ c3 ^ k1;
        c3 = (u32)p0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return {c0, c1, c2, c3};
}

struct Philox32 {  // 65536 subsequences side by side, four words of each in turn
    static const int WORDS = 4;
    __device__ static void group(u64 g, u64 seed, u32 (&w)[4]) {
        const Words4 found = philox_4x32((u32)(g >> 16), (u32)(g >> 48), (u32)g & 0xFFFFu, 0, seed);
#pragma unroll
        for (int i = 0; i < 4; ++i) w[i] = found.w[i];
    }
};

struct Philox64 {  // one sequence, whose first counter is 1
    static const int WORDS = 8;
    __device__ static void group(u64 g, u64 seed, u32 (&w)[8]) {
        u64 c0 = g + 1, c1 = 0, c2 = 0, c3 = 0, k0 = seed, k1 = 0;
#pragma unroll
        for (int round = 0; round < 10; ++round) {
            const u64 M0 = 0xD2E7470EE14C6C93ull, M1 = 0xCA5A826395121157ull;
            const u64 h0 = __umul64hi(M0, c0), h1 = __umul64hi(M1, c2), l0 = M0 * c0, l1 = M1 * c2;
            c0 = h1 ^ c1 ^ k0;
            c1 = l1;
            c2 = h0 ^ c3 ^ k1;
            c3 = l0;
            k0 += 0x9E3779B97F4A7C15ull;
            k1 += 0xBB67AE8584CAA73Bull;
        }
        const u64 c[4] = {c0, c1, c2, c3};
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            w[2 * i] = (u32)c[i];
            w[2 * i + 1] = (u32)(c[i] >> 32);
        }
    }
};

// -- numbers from words -----------------------------------------------------------------------------------------------

__device__ inline u64 wide(u32 low, u32 high) { return (u64)high << 32 | low; }
__device__ inline double unit_53(u64 word) { return __dmul_rn((double)(i64)(word >> 11), INV_53); }  // [0, 1)
__device__ inline double above_53(u64 word) { return __dmul_rn((double)(i64)((word >> 11) + 1), INV_53); }  // (0, 1]
__device__ inline float above_32(u32 word) { return fmaf((float)word, INV_32, 0.5f * INV_32); }  // (0, 1]

__device__ inline Half to(float x, Half*) { return narrow<Half>(x); }
__device__ inline Brain to(float x, Brain*) { return narrow_keeping_nan(x); }
__device__ inline float to(float x, float*) { return x; }
__device__ inline double to(double x, double*) { return x; }
