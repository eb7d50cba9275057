// Matrices of blocks: which blocks have entries, blocks from entries, and what the arrays hold.
// A blocked-ELL matrix has `most` blocks in each block row and no pointers.

#include "sparse.cuh"
#include "sparse_numbers.cuh"

struct BlockArgs {
    const void* src;       // a dense matrix, entries, or blocks
    void* out;             // blocks, or a dense matrix
    const void* first;     // columns of entries
    const void* second;    // pointers of entries
    void* indices;         // block columns
    void* pointers;        // of block rows; with `ell`, while blocks are made: how many each has, after a 0
    i64* count;            // blocks, or those of the fullest block row
    u32* faults;
    i64 lines, width;      // block rows and block columns
    i64 down, across;      // of a block
    i64 entries;           // of the output (of the source, where blocks are made of entries)
    i64 room;              // blocks that there is room for
    i64 most;
    i64 row_step, col_step;
    int ell, lowest, ordered, least;
    int share;             // block rows that a block of threads takes at once: 1, or one for each warp
};

#define WORDS 4096
#define THREADS 256
#define WARPS (THREADS / 32)
#define FEW 1024     // entries
#define DISTINCT 128  // blocks

// Which blocks of a window of a block row have entries: of a dense matrix.
template <typename T>
struct Dense {
    static __device__ i64 entries(const BlockArgs& p, i64 line) { return FEW + 1; }  // not known: many

    static __device__ void mark(const BlockArgs& p, u32* bits, i64 line, i64 begin, i64 end) {
        const i64 span = (end - begin) * p.across;
        const T* const corner = (const T*)p.src + line * p.down * p.row_step + begin * p.across * p.col_step;
        for (i64 e = threadIdx.x; e < p.down * span; e += THREADS) {
            const i64 j = e % span;
            if (stored(corner[e / span * p.row_step + j * p.col_step])) {
                const i64 at = j / p.across;
                atomicOr(bits + (at >> 5), 1u << (at & 31));
            }
        }
    }
};

// Of rows of entries, whose order does not matter.
template <typename I>
struct Entries {
    static __device__ i64 entries(const BlockArgs& p, i64 line) {
        return (i64)((const I*)p.second)[(line + 1) * p.down] - ((const I*)p.second)[line * p.down];
    }

    static __device__ void mark(const BlockArgs& p, u32* bits, i64 line, i64 begin, i64 end) {
        const I* const starts = (const I*)p.second;
        for (i64 e = starts[line * p.down] + threadIdx.x; e < starts[(line + 1) * p.down]; e += THREADS) {
            const i64 at = ((const I*)p.first)[e] / p.across - begin;
            if (at >= 0 && at < end - begin) atomicOr(bits + (at >> 5), 1u << (at & 31));
        }
    }
};

// The sum of all threads before, and of all; `sums` is shared.
__device__ i64 before(i64* sums, i64 own, i64& all) {
    sums[threadIdx.x] = own;
    __syncthreads();
    for (int step = 1; step < THREADS; step <<= 1) {
        const i64 left = threadIdx.x >= step ? sums[threadIdx.x - step] : 0;
        __syncthreads();
        sums[threadIdx.x] += left;
        __syncthreads();
    }
    all = sums[THREADS - 1];
    const i64 found = sums[threadIdx.x] - own;
    __syncthreads();
    return found;
}

// Where the blocks of a block row begin in the output, and how many there are at most.
template <typename I>
__device__ i64 start_of(const BlockArgs& p, i64 line) {
    return p.ell ? line * p.most : (i64)((const I*)p.pointers)[line];
}
__device__ i64 limit_of(const BlockArgs& p, i64 start) { return p.ell ? p.most : p.room - start; }

// How many blocks a block row has, for one thread to note.
template <typename I>
__device__ void note(const BlockArgs& p, i64 line, i64 found) {
    ((I*)p.pointers)[line + 1] = (I)found;
    if (p.ell && found > *(volatile i64*)p.count) atomicMax((u64*)p.count, (u64)found);
}

// The blocks of a block row of few entries; a warp for each. `cols` is its own, and gets each block once. False, and
// nothing done, if there are too many of them.
template <typename I, bool WRITES>
__device__ bool few(const BlockArgs& p, I* cols, i64 line, i64 first, int n) {
    typedef typename Reach<I>::N N;
    const int lane = threadIdx.x & 31;
    int found = 0;
    for (int j0 = 0; j0 < n; j0 += 32) {
        const int j = j0 + lane;
        const N col = j < n ? (N)((const I*)p.first)[first + j] / (N)p.across : (N)-1;  // none has the last number
        const u32 same = __match_any_sync(0xffffffffu, col);
        bool leads = j < n && __ffs(same) - 1 == lane;
        for (int i = 0; i < found; ++i) leads = leads && (N)cols[i] != col;
        const u32 leading = __ballot_sync(0xffffffffu, leads);
        if (found + __popc(leading) > DISTINCT) return false;
        if (leads) cols[found + __popc(leading & ((1u << lane) - 1))] = (I)col;
        found += __popc(leading);
        __syncwarp();
    }
    if (!WRITES) {
        if (lane == 0) note<I>(p, line, found);
        return true;
    }
    const i64 start = start_of<I>(p, line), limit = limit_of(p, start);
    for (int j = lane; j < found; j += 32) {
        const I col = cols[j];
        i64 at = 0;
        for (int i = 0; i < found; ++i) at += cols[i] < col;
        if (at < limit) ((I*)p.indices)[start + at] = col;
    }
    for (i64 at = found + lane; p.ell && at < p.most; at += 32) ((I*)p.indices)[start + at] = (I)-1;
    __syncwarp();
    return true;
}

// Those of one of many: a bit for each block column; a block of threads for each.
template <typename Source, typename I, bool WRITES>
__device__ void many(const BlockArgs& p, u32* bits, i64* sums, i64 line) {
    i64 total = 0;
    for (i64 begin = 0; begin < p.width; begin += 32 * WORDS) {
        const i64 end = begin + 32 * WORDS < p.width ? begin + 32 * WORDS : p.width;
        const int words = (int)((end - begin + 31) / 32);
        for (int w = threadIdx.x; w < words; w += THREADS) bits[w] = 0;
        __syncthreads();
        Source::mark(p, bits, line, begin, end);
        __syncthreads();
        const int share = (words + THREADS - 1) / THREADS;
        const int low = threadIdx.x * share, high = low + share < words ? low + share : words;
        i64 own = 0, all;
        for (int w = low; w < high; ++w) own += __popc(bits[w]);
        i64 at = total + before(sums, own, all);
        if (WRITES) {
            const i64 start = start_of<I>(p, line), limit = limit_of(p, start);
            for (int w = low; w < high; ++w) {
                for (u32 left = bits[w]; left; left &= left - 1, ++at) {
                    if (at < limit) ((I*)p.indices)[start + at] = (I)(begin + 32 * w + __ffs(left) - 1);
                }
            }
        }
        total += all;
        __syncthreads();
    }
    if (!WRITES) {
        if (threadIdx.x == 0) note<I>(p, line, total);
        return;
    }
    for (i64 at = total + threadIdx.x; p.ell && at < p.most; at += THREADS) {
        ((I*)p.indices)[line * p.most + at] = (I)-1;
    }
}

// Count the blocks of each block row, or write their columns in order.
template <typename Source, typename I, bool WRITES>
__device__ void pattern(const BlockArgs& p) {
    __shared__ alignas(16) u32 bits[WORDS];
    __shared__ i64 sums[THREADS];
    __shared__ bool open[WARPS];
    const int warp = threadIdx.x / 32;
    for (i64 begin = (i64)blockIdx.x * p.share; begin < p.lines; begin += (i64)gridDim.x * p.share) {
        const i64 line = begin + warp, end = begin + p.share < p.lines ? begin + p.share : p.lines;
        const i64 entries = line < end ? Source::entries(p, line) : 0;
        bool left = line < end;
        if (left && entries <= FEW) {
            I* const cols = (I*)bits + warp * DISTINCT;
            left = !few<I, WRITES>(p, cols, line, ((const I*)p.second)[line * p.down], (int)entries);
        }
        open[warp] = left;
        if (!__syncthreads_or(left)) continue;
        for (i64 each = begin; each < end; ++each) {
            if (open[each - begin]) many<Source, I, WRITES>(p, bits, sums, each);
        }
        __syncthreads();
    }
}

// Where an element of stored blocks lies in the matrix; false for padding, and beyond the blocks that there are.
template <typename I>
__device__ bool place(const BlockArgs& p, i64 e, i64& row, i64& col) {
    const I* const indices = (const I*)p.indices;
    if (p.ell) {
        const i64 length = p.most * p.across;
        row = e / length;
        const i64 slot = e % length / p.across;
        const i64 at = indices[row / p.down * p.most + slot];
        col = at * p.across + e % p.across;
        return at >= 0;
    }
    const i64 k = e / (p.down * p.across);
    if (k >= (i64)((const I*)p.pointers)[p.lines]) return false;
    const i64 line = bound((const I*)p.pointers, p.lines + 1, k, true) - 1;
    row = line * p.down + e / p.across % p.down;
    col = indices[k] * p.across + e % p.across;
    return true;
}

// Blocks from a dense matrix; padding becomes 0.
template <typename T, typename I>
__device__ void gather(const BlockArgs& p) {
    for (i64 e = thread(); e < p.entries; e += threads()) {
        i64 row, col;
        if (place<I>(p, e, row, col)) {
            ((T*)p.out)[e] = ((const T*)p.src)[row * p.row_step + col * p.col_step];
        } else if (p.ell) {
            ((T*)p.out)[e] = T{};
        }
    }
}

// Whether an element of stored blocks has the place of that in the block before.
template <typename I>
__device__ bool again(const BlockArgs& p, i64 e) {
    if (e >= p.entries) return false;
    const I* indices = (const I*)p.indices;
    if (p.ell) {
        const i64 length = p.most * p.across, slot = e % length / p.across;
        indices += e / length / p.down * p.most;
        return slot > 0 && indices[slot] >= 0 && indices[slot] == indices[slot - 1];
    }
    const i64 k = e / (p.down * p.across);
    if (k == 0 || indices[k] != indices[k - 1]) return false;
    const I* const pointers = (const I*)p.pointers;
    const i64 line = bound(pointers, p.lines + 1, k, true) - 1;
    return line < p.lines && (i64)pointers[line] < k;
}

// A dense matrix from blocks, over zeros. The first of those with one place, side by side, adds them up in their order.
template <typename T, typename I>
__device__ void spread(const BlockArgs& p) {
    const T* const src = (const T*)p.src;
    const i64 step = p.ell ? p.across : p.down * p.across;
    for (i64 e = thread(); e < p.entries; e += threads()) {
        i64 row, col;
        if (!place<I>(p, e, row, col) || again<I>(p, e)) continue;
        T* const at = (T*)p.out + row * p.row_step + col * p.col_step;
        if (!again<I>(p, e + step)) {
            *at = src[e];
            continue;
        }
        auto sum = wide(src[e]);
        for (i64 k = e + step; again<I>(p, k); k += step) sum = sum + wide(src[k]);
        put(at, sum);
    }
}

// Zeros in the blocks that there are and that there is room for.
template <typename T>
__device__ void blank(const BlockArgs& p) {
    const i64 held = *p.count < p.room ? *p.count : p.room, n = held * p.down * p.across;
    for (i64 e = thread(); e < n; e += threads()) ((T*)p.out)[e] = T{};
}

// Blocks from rows of entries, over zeros. The first of those with one place, side by side, adds them up in their order.
template <typename T, typename I>
__device__ void pack(const BlockArgs& p) {
    const I* const starts = (const I*)p.second;
    const I* const pointers = (const I*)p.pointers;
    const I* const indices = (const I*)p.indices;
    typedef typename Reach<I>::N N;
    for (i64 e = thread(); e < p.entries; e += threads()) {
        const N row = (N)bound(starts, p.lines * p.down + 1, e, true) - 1, col = (N)((const I*)p.first)[e];
        const I* const cols = (const I*)p.first;
        const i64 begin = starts[row], end = starts[row + 1];
        if (e > begin && cols[e - 1] == cols[e]) continue;
        const N line = row / (N)p.down, wanted = col / (N)p.across;
        const i64 start = start_of<I>(p, line), limit = limit_of(p, start);
        const i64 held = p.ell ? (i64)pointers[line + 1] : pointers[line + 1] - start, n = held < limit ? held : limit;
        if (n <= 0) continue;
        const i64 at = bound(indices + start, n, wanted, false);
        if (at == n || (N)indices[start + at] != wanted) continue;
        const i64 i = row - line * (N)p.down, j = col - wanted * (N)p.across;
        const i64 corner = p.ell ? row * p.most + at : (start + at) * p.down + i;
        T* const out = (T*)p.out + corner * p.across + j;
        if (e + 1 >= end || cols[e + 1] != cols[e]) {
            *out = ((const T*)p.src)[e];
            continue;
        }
        auto sum = wide(((const T*)p.src)[e]);
        for (i64 k = e + 1; k < end && cols[k] == cols[e]; ++k) sum = sum + wide(((const T*)p.src)[k]);
        put(out, sum);
    }
}

// What is wrong with the indices of a blocked-ELL matrix; where the kernel `check` counts it.
template <typename I>
__device__ void look(const BlockArgs& p) {
    const I* const indices = (const I*)p.indices;
    for (i64 e = thread(); e < p.lines * p.most; e += threads()) {
        const i64 at = indices[e];
        if (at < p.lowest || at >= p.width) atomicAdd(p.faults + 1, 1u);
        if (p.ordered && e % p.most) {
            const i64 last = indices[e - 1];
            if (at >= 0 && (last < 0 || (p.least ? at <= last : at < last))) atomicAdd(p.faults + 4, 1u);
        }
    }
}

typedef BlockArgs Args;

#define FOR_VALUE(T, type, index)                          \
    KERNEL(count_##T, pattern<Dense<type>, index, false>)  \
    KERNEL(write_##T, pattern<Dense<type>, index, true>)

#define FOR_NUMBER(T, type, index)            \
    KERNEL(spread_##T, spread<type, index>)   \
    KERNEL(pack_##T, pack<type, index>)

#define FOR_SIZE(S, type, index)              \
    KERNEL(gather_##S, gather<type, index>)   \
    KERNEL(blank_##S, blank<type>)

#define FOR_INDEX(index)                                         \
    FOR_VALUE(half, Half, index)                                 \
    FOR_VALUE(f32, Real, index)                                  \
    FOR_VALUE(f64, Double, index)                                \
    FOR_VALUE(c64, Complex, index)                               \
    FOR_VALUE(c128, Wide, index)                                 \
    FOR_NUMBER(f16, Half, index)                                 \
    FOR_NUMBER(bf16, Brain, index)                               \
    FOR_NUMBER(f32, float, index)                                \
    FOR_NUMBER(f64, double, index)                               \
    FOR_NUMBER(c64, Single, index)                               \
    FOR_NUMBER(c128, Twice, index)                               \
    FOR_SIZE(2, Half, index)                                     \
    FOR_SIZE(4, Real, index)                                     \
    FOR_SIZE(8, Double, index)                                   \
    FOR_SIZE(16, Wide, index)                                    \
    KERNEL(count_entries, pattern<Entries<index>, index, false>) \
    KERNEL(write_entries, pattern<Entries<index>, index, true>)  \
    KERNEL(check_padded, look<index>)

#include "sparse_indices.cuh"
