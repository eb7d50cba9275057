// A grid of CUDA threads on the CPU, for kernels whose text this is put before: each thread of a block is a fiber, and
// all run in turn until they meet at a barrier or a shuffle. A barrier that not all threads reach ends the launch.

#include <cmath>
#include <csetjmp>
#include <cstdlib>
#include <cstring>
#include <ucontext.h>
#include <utility>
using namespace std;

#define EMULATED
#define __device__
#define __global__
#define __forceinline__ inline
#define __noinline__
#define __launch_bounds__(...)
#define __grid_constant__
#define __shared__ static
#define __align__(n) alignas(n)
struct Dim3 { unsigned x, y, z; };
static Dim3 threadIdx, blockIdx, blockDim, gridDim;
alignas(16) static double shared_block[1 << 16];

struct Fiber {
    ucontext_t context;
    jmp_buf at;  // switches without a call of the kernel
    char stack[1 << 16];
    bool made, ended;
};
static jmp_buf scheduler;
static Fiber* fibers;
static void (*body)(const void*);
static const void* given;
static unsigned current;
static bool progress;  // since all threads were last given their turn

static void pause_thread() {
    if (!_setjmp(fibers[current].at)) _longjmp(scheduler, 1);
}
static void enter() {
    for (;;) {
        body(given);
        fibers[current].ended = progress = true;
        pause_thread();
    }
}
static __attribute__((noinline)) void resume_thread() {
    Fiber& f = fibers[current];
    if (_setjmp(scheduler)) return;
    if (f.made) _longjmp(f.at, 1);
    f.made = true;
    getcontext(&f.context);
    f.context.uc_stack.ss_sp = f.stack;
    f.context.uc_stack.ss_size = sizeof f.stack;
    makecontext(&f.context, enter, 0);
    setcontext(&f.context);
}

struct Barrier {
    unsigned arrived = 0, turn = 0;
    void wait(unsigned all) {
        const unsigned mine = turn;
        progress = true;
        if (++arrived == all) {
            arrived = 0;
            ++turn;
            return;
        }
        while (turn == mine) pause_thread();
    }
};
static Barrier whole, warps[32];
static void __syncthreads() { whole.wait(blockDim.x); }
static void __syncwarp() {
    const unsigned first = current / 32 * 32;
    warps[current / 32].wait(blockDim.x - first < 32 ? blockDim.x - first : 32);
}
static int __syncthreads_or(int x) {
    static int votes;
    votes = 0;
    __syncthreads();
    votes |= x;
    __syncthreads();
    const int any = votes;
    __syncthreads();
    return any;
}

static double slots[32][32];
template <typename X> static X shuffled(X x, unsigned from) {
    const unsigned warp = current / 32;
    memcpy(&slots[warp][current % 32], &x, sizeof x);
    __syncwarp();
    X found;
    memcpy(&found, &slots[warp][from], sizeof found);
    __syncwarp();
    return found;
}
template <typename X> static X __shfl_xor_sync(unsigned, X x, int step) { return shuffled(x, current % 32 ^ step); }
template <typename X> static X __shfl_sync(unsigned, X x, int from) { return shuffled(x, from); }
static unsigned __ballot_sync(unsigned, bool vote) {
    unsigned votes = 0;
    for (unsigned lane = 0; lane < 32; lane++) votes |= (unsigned)__shfl_sync(~0u, (int)vote, lane) << lane;
    return votes;
}

template <typename To, typename From> static To same_bits(From x) { To y; memcpy(&y, &x, sizeof y); return y; }
static float __int_as_float(int x) { return same_bits<float>(x); }
static float __uint_as_float(unsigned x) { return same_bits<float>(x); }
static unsigned __float_as_uint(float x) { return same_bits<unsigned>(x); }
static double __longlong_as_double(long long x) { return same_bits<double>(x); }
static long long __double_as_longlong(double x) { return same_bits<long long>(x); }
static float rsqrtf(float x) { return 1 / sqrt(x); }
static double rsqrt(double x) { return 1 / sqrt(x); }
static int __float2int_rn(float x) { return (int)rintf(x); }
static int __double2int_rz(double x) { return (int)x; }
static double __dmul_rn(double x, double y) { return x * y; }
static double __dsub_rn(double x, double y) { return x - y; }
static int __popc(unsigned x) { return __builtin_popcount(x); }
static int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
static unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)((unsigned long long)a * b >> 32); }
static unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
    return (unsigned long long)((unsigned __int128)a * b >> 64);
}
template <typename X> static X atomicAdd(X* at, X n) { const X old = *at; *at += n; return old; }
template <typename X> static X atomicMax(X* at, X n) { const X old = *at; *at = max(old, n); return old; }
template <typename X> static X atomicMin(X* at, X n) { const X old = *at; *at = min(old, n); return old; }
static unsigned atomicOr(unsigned* at, unsigned bits) { const unsigned old = *at; *at |= bits; return old; }
static unsigned __byte_perm(unsigned x, unsigned y, unsigned select) {
    const unsigned long long bytes = (unsigned long long)y << 32 | x;
    unsigned found = 0;
    for (int i = 0; i < 4; ++i) found |= (bytes >> 8 * (select >> 4 * i & 7) & 0xff) << 8 * i;
    return found;
}

// The instructions of data/attention_decode.cu, of bf16.
static void read(unsigned (&x)[4], const void* at) { memcpy(x, at, 16); }
static unsigned held[32][32][6];
static float number(unsigned warp, unsigned lane, int word, int upper) {
    const unsigned x = held[warp][lane][word];
    return __uint_as_float(upper ? x & 0xffff0000 : x << 16);
}
static void multiply(float (&c)[4], unsigned a0, unsigned a1, unsigned a2, unsigned a3, unsigned b0, unsigned b1) {
    const unsigned warp = current / 32, lane = current % 32, mine[] = {a0, a1, a2, a3, b0, b1};
    memcpy(held[warp][lane], mine, sizeof mine);
    __syncwarp();
    for (int i = 0; i < 4; ++i)
        for (int k = 0; k < 16; ++k) {
            const unsigned row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2, two = k % 8 / 2;
            c[i] += number(warp, row % 8 * 4 + two, row / 8 + k / 8 * 2, k % 2) *
                    number(warp, column * 4 + two, 4 + k / 8, k % 2);
        }
    __syncwarp();
}
static unsigned transposed(unsigned x) {
    const unsigned warp = current / 32, lane = current % 32;
    held[warp][lane][0] = x;
    __syncwarp();
    unsigned found = 0;
    for (int i = 0; i < 2; ++i) {
        const unsigned row = lane % 4 * 2 + i, column = lane / 4;
        found |= (held[warp][row * 4 + column / 2][0] >> column % 2 * 16 & 0xffff) << 16 * i;
    }
    __syncwarp();
    return found;
}

// Execute a grid; a status of the driver, 719 where threads wait for ever.
static int run(void (*kernel)(const void*), const void* args, unsigned x, unsigned y, unsigned threads) {
    if (!fibers) fibers = (Fiber*)calloc(1024, sizeof(Fiber));
    body = kernel;
    given = args;
    blockDim = {threads, 1, 1};
    gridDim = {x, y, 1};
    for (unsigned b = 0; b < x * y; ++b) {
        blockIdx = {b % x, b / x, 0};
        whole = Barrier();
        for (Barrier& warp : warps) warp = Barrier();
        memset(shared_block, 0xff, sizeof shared_block);
        for (unsigned t = 0; t < threads; ++t) fibers[t].ended = false;
        for (unsigned left = threads; left;) {
            left = 0;
            progress = false;
            for (current = 0; current < threads; ++current) {
                if (fibers[current].ended) continue;
                threadIdx = {current, 0, 0};
                resume_thread();
                left += !fibers[current].ended;
            }
            if (left && !progress) {
                for (unsigned t = 0; t < threads; ++t) fibers[t].made = fibers[t].ended;
                return 719;
            }
        }
    }
    return 0;
}

// A function run_NAME(addresses of the arguments, grid, grid, block) for a kernel.
template <auto K> struct Kernel;
template <typename... A, void (*K)(A...)> struct Kernel<K> {
    template <size_t... I> static void call(void* const* at, index_sequence<I...>) { K(*(A*)at[I]...); }
    static void call(const void* at) { call((void* const*)at, index_sequence_for<A...>()); }
};
#define RUN(NAME)                                                                                                    \
    extern "C" int run_##NAME(const void* at, unsigned x, unsigned y, unsigned threads) {                            \
        return run(Kernel<&::NAME>::call, at, x, y, threads);                                                           \
    }
