// A block of CUDA threads on the CPU, for kernels whose text this is put before: each thread is a fiber, and all run in
// turn until they meet at a barrier or a shuffle. Enough of CUDA C++ for data/attention*.cu in f32 and f64.

#include <ucontext.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <vector>

#define __device__
#define __global__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define EMULATED
#define __shared__ static
using std::max;
using std::min;

struct Index { unsigned x, y, z; };
static Index threadIdx, blockIdx, blockDim, gridDim;
alignas(16) static double shared_memory[1 << 16];

struct Fiber {
    ucontext_t context;
    std::vector<char> stack;
    bool ended;
    unsigned number;
};
static ucontext_t main_context;
static std::vector<Fiber> fibers;
static std::function<void()> body;
static unsigned current;

static void enter() {
    body();
    fibers[current].ended = true;
    swapcontext(&fibers[current].context, &main_context);
}
static void pause() {
    swapcontext(&fibers[current].context, &main_context);
    threadIdx = {fibers[current].number, 0, 0};
}

struct Barrier {
    unsigned arrived = 0, turn = 0;
    void wait(unsigned all) {
        const unsigned mine = turn;
        if (++arrived == all) {
            arrived = 0;
            ++turn;
        } else {
            while (turn == mine) pause();
        }
    }
};
static Barrier whole, warps[32];
static double slots[32][32];

static unsigned living(unsigned first, unsigned last) {
    unsigned count = 0;
    for (unsigned i = first; i < last && i < fibers.size(); ++i) count += !fibers[i].ended;
    return count;
}
static void __syncthreads() { whole.wait(living(0, fibers.size())); }

template <typename X>
static X shuffled(X x, unsigned from) {
    const unsigned warp = current / 32, lane = current % 32;
    std::memcpy(&slots[warp][lane], &x, sizeof x);
    warps[warp].wait(32);
    X found;
    std::memcpy(&found, &slots[warp][from], sizeof found);
    warps[warp].wait(32);
    return found;
}
template <typename X>
static X __shfl_xor_sync(unsigned, X x, int step) { return shuffled(x, current % 32 ^ step); }
template <typename X>
static X __shfl_sync(unsigned, X x, int from) { return shuffled(x, from); }

static void __syncwarp() { warps[current / 32].wait(32); }
static float __int_as_float(int x) { float f; std::memcpy(&f, &x, 4); return f; }
static float __uint_as_float(unsigned x) { float f; std::memcpy(&f, &x, 4); return f; }
static unsigned __float_as_uint(float f) { unsigned x; std::memcpy(&x, &f, 4); return x; }
static int __float2int_rn(float f) { return (int)std::nearbyint(f); }
static unsigned atomicOr(unsigned* at, unsigned bits) { const unsigned old = *at; *at |= bits; return old; }

static unsigned __byte_perm(unsigned x, unsigned y, unsigned select) {
    const unsigned long long bytes = (unsigned long long)y << 32 | x;
    unsigned found = 0;
    for (int i = 0; i < 4; ++i) found |= (bytes >> 8 * (select >> 4 * i & 7) & 0xff) << 8 * i;
    return found;
}

// The instructions of data/attention_decode.cu, of bf16.
static void read(unsigned (&x)[4], const void* at) { std::memcpy(x, at, 16); }
static unsigned held[32][32][6];
static float number(unsigned warp, unsigned lane, int word, int upper) {
    const unsigned x = held[warp][lane][word];
    return __uint_as_float(upper ? x & 0xffff0000 : x << 16);
}
static void multiply(float (&c)[4], unsigned a0, unsigned a1, unsigned a2, unsigned a3, unsigned b0, unsigned b1) {
    const unsigned warp = current / 32, lane = current % 32, mine[] = {a0, a1, a2, a3, b0, b1};
    std::memcpy(held[warp][lane], mine, sizeof mine);
    warps[warp].wait(32);
    for (int i = 0; i < 4; ++i)
        for (int k = 0; k < 16; ++k) {
            const unsigned row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2, two = k % 8 / 2;
            c[i] += number(warp, row % 8 * 4 + two, row / 8 + k / 8 * 2, k % 2) *
                    number(warp, column * 4 + two, 4 + k / 8, k % 2);
        }
    warps[warp].wait(32);
}
static unsigned transposed(unsigned x) {
    const unsigned warp = current / 32, lane = current % 32;
    held[warp][lane][0] = x;
    warps[warp].wait(32);
    unsigned found = 0;
    for (int i = 0; i < 2; ++i) {
        const unsigned row = lane % 4 * 2 + i, column = lane / 4;
        found |= (held[warp][row * 4 + column / 2][0] >> column % 2 * 16 & 0xffff) << 16 * i;
    }
    warps[warp].wait(32);
    return found;
}

static void run(std::function<void()> kernel, unsigned blocks, unsigned threads) {
    body = kernel;
    blockDim = {threads, 1, 1};
    gridDim = {blocks, 1, 1};
    for (unsigned b = 0; b < blocks; ++b) {
        blockIdx = {b, 0, 0};
        whole = Barrier();
        for (Barrier& warp : warps) warp = Barrier();
        std::memset(shared_memory, 0xff, sizeof shared_memory);
        fibers.resize(threads);
        for (unsigned t = 0; t < threads; ++t) {
            Fiber& f = fibers[t];
            f.stack.resize(1 << 16);
            f.ended = false;
            f.number = t;
            getcontext(&f.context);
            f.context.uc_stack.ss_sp = f.stack.data();
            f.context.uc_stack.ss_size = f.stack.size();
            f.context.uc_link = &main_context;
            makecontext(&f.context, enter, 0);
        }
        for (bool any = true; any;) {
            any = false;
            for (current = 0; current < threads; ++current) {
                if (fibers[current].ended) continue;
                any = true;
                threadIdx = {fibers[current].number, 0, 0};
                swapcontext(&main_context, &fibers[current].context);
            }
        }
    }
}
