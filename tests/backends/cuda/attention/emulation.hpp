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
#define __launch_bounds__(n)
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
