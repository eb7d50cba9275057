// Sparse matrices: entries of a dense matrix, scattering, pointers from sorted rows and back, and what the arrays hold.

#include "sparse.cuh"
#include "sparse_numbers.cuh"

struct SparseArgs {
    const void* src;      // dense, values, or indices
    void* out;            // values, dense, or indices
    const void* first;    // indices (columns of a COO matrix)
    const void* second;   // pointers, or rows of a COO matrix
    void* first_out;
    void* second_out;
    void* pointers;
    i64* count;
    u32* faults;
    i64 major, minor, entries, room;
    i64 major_step, minor_step;
    int coordinates, ordered, least;
};

// How many entries each row (or column) has; a warp for each.
template <typename T, typename I>
__device__ void count(const SparseArgs& p) {
    const int lane = threadIdx.x & 31;
    for (i64 line = thread() >> 5; line < p.major; line += threads() >> 5) {
        const T* const items = (const T*)p.src + line * p.major_step;
        i64 found = 0;
        for (i64 j = lane; j < p.minor; j += 32) {
            found += stored(items[j * p.minor_step]);
        }
        for (int step = 16; step; step >>= 1) {
            found += __shfl_down_sync(0xffffffffu, found, step);
        }
        if (lane == 0) {
            ((I*)p.pointers)[line + 1] = (I)found;
        }
    }
}

// The sum of what threads up to this one have, and of all; for blocks of 1024 threads.
__device__ i64 upto(i64 own, i64& all) {
    __shared__ i64 sums[32];
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    for (int step = 1; step < 32; step <<= 1) {
        const i64 left = __shfl_up_sync(0xffffffffu, own, step);
        if (lane >= step) own += left;
    }
    if (lane == 31) sums[warp] = own;
    __syncthreads();
    i64 before = 0;
    all = 0;
    for (int w = 0; w < 32; ++w) {
        if (w < warp) before += sums[w];
        all += sums[w];
    }
    __syncthreads();
    return before + own;
}

// Numbers become the sums of all up to them, behind a 0: each block of threads has a share, whose sum comes first.
template <typename I>
__device__ void sums(const SparseArgs& p) {
    const I* const items = (const I*)p.pointers + 1;
    const i64 share = (p.major + gridDim.x - 1) / gridDim.x, begin = blockIdx.x * share;
    const i64 end = begin + share < p.major ? begin + share : p.major;
    i64 own = 0, all;
    for (i64 i = begin + threadIdx.x; i < end; i += blockDim.x) own += items[i];
    upto(own, all);
    if (threadIdx.x == 0) ((i64*)p.out)[blockIdx.x] = all;
}

template <typename I>
__device__ void scan(const SparseArgs& p) {
    I* const items = (I*)p.pointers + 1;
    const i64 share = (p.major + gridDim.x - 1) / gridDim.x, begin = blockIdx.x * share;
    const i64 end = begin + share < p.major ? begin + share : p.major;
    i64 sum, all;
    upto(threadIdx.x < blockIdx.x ? ((const i64*)p.out)[threadIdx.x] : 0, sum);
    for (i64 first = begin; first < end; first += blockDim.x) {
        const i64 i = first + threadIdx.x;
        const i64 found = sum + upto(i < end ? (i64)items[i] : 0, all);
        if (i < end) items[i] = (I)found;
        sum += all;
    }
    if (blockIdx.x == gridDim.x - 1 && threadIdx.x == 0) {
        items[-1] = 0;
        *p.count = sum;
    }
}

// The entries themselves, as far as there is room.
template <typename T, typename I>
__device__ void write(const SparseArgs& p) {
    const int lane = threadIdx.x & 31;
    for (i64 line = thread() >> 5; line < p.major; line += threads() >> 5) {
        const T* const items = (const T*)p.src + line * p.major_step;
        i64 at = ((const I*)p.pointers)[line];
        for (i64 j0 = 0; j0 < p.minor; j0 += 32) {
            const i64 j = j0 + lane;
            const T item = items[(j < p.minor ? j : 0) * p.minor_step];
            const bool is = j < p.minor && stored(item);
            const u32 all = __ballot_sync(0xffffffffu, is);
            const i64 mine = at + __popc(all & ((1u << lane) - 1));
            if (is && mine < p.room) {
                ((T*)p.out)[mine] = item;
                ((I*)p.first_out)[mine] = (I)j;
                if (p.coordinates) {
                    ((I*)p.second_out)[mine] = (I)line;
                }
            }
            at += __popc(all);
        }
    }
}

// The row of each entry, from pointers.
template <typename I>
__device__ void expand(const SparseArgs& p) {
    for (i64 j = thread(); j < p.entries; j += threads()) {
        ((I*)p.second_out)[j] = (I)(bound((const I*)p.second, p.major + 1, j, true) - 1);
    }
}

// Pointers, from sorted rows.
template <typename I>
__device__ void compress(const SparseArgs& p) {
    for (i64 i = thread(); i <= p.major; i += threads()) {
        ((I*)p.second_out)[i] = (I)bound((const I*)p.second, p.entries, i, false);
    }
}

template <typename T>
__device__ void clear(const SparseArgs& p) {
    const i64 n = p.major * p.minor;
    for (i64 i = thread(); i < n; i += threads()) {
        ((T*)p.out)[i / p.minor * p.major_step + i % p.minor * p.minor_step] = T{};
    }
}

// Whether an entry, one of a line or the next after those, has the place of the one before it.
template <typename I>
__device__ bool again(const SparseArgs& p, i64 j, i64 line) {
    const I* const first = (const I*)p.first;
    const I* const second = (const I*)p.second;
    if (j == 0 || j >= p.entries || first[j] != first[j - 1]) return false;
    return p.coordinates ? second[j] == second[j - 1] : (i64)second[line] < j && j < (i64)second[line + 1];
}

// Entries over zeros. The first of those with one place, side by side, adds them up in their order.
template <typename T, typename I>
__device__ void scatter(const SparseArgs& p) {
    const T* const src = (const T*)p.src;
    const I* const second = (const I*)p.second;
    for (i64 j = thread(); j < p.entries; j += threads()) {
        const i64 line = p.coordinates ? (i64)second[j] : bound(second, p.major + 1, j, true) - 1;
        if (again<I>(p, j, line)) continue;
        T* const at = (T*)p.out + line * p.major_step + (i64)((const I*)p.first)[j] * p.minor_step;
        if (!again<I>(p, j + 1, line)) {
            *at = src[j];
            continue;
        }
        auto sum = wide(src[j]);
        for (i64 k = j + 1; again<I>(p, k, line); ++k) sum = sum + wide(src[k]);
        put(at, sum);
    }
}

// What is wrong: [pointers, first out of range, second out of range, falling rows, not rising within a row].
template <typename I>
__device__ void check(const SparseArgs& p) {
    const I* const first = (const I*)p.first;
    const I* const second = (const I*)p.second;
    if (!p.coordinates) {
        for (i64 i = thread(); i <= p.major; i += threads()) {
            const bool fault = (i > 0 && second[i] < second[i - 1]) || (i == p.major && second[i] != p.entries);
            if (fault) atomicAdd(p.faults, 1u);
            if (i == 0 && second[0] != 0) atomicAdd(p.faults, 1u);
        }
    }
    for (i64 j = thread(); j < p.entries; j += threads()) {
        if (first[j] < 0 || first[j] >= p.minor) atomicAdd(p.faults + 1, 1u);
        if (p.coordinates) {
            if (second[j] < 0 || second[j] >= p.major) atomicAdd(p.faults + 2, 1u);
            if (j > 0 && second[j] < second[j - 1]) atomicAdd(p.faults + 3, 1u);
        }
        if (p.ordered && j > 0 && (p.least ? first[j] <= first[j - 1] : first[j] < first[j - 1])) {
            bool same;
            if (p.coordinates) {
                same = second[j] == second[j - 1];
            } else {
                const i64 line = bound(second, p.major + 1, j, true) - 1;
                same = line >= 0 && second[line] < j;
            }
            if (same) atomicAdd(p.faults + 4, 1u);
        }
    }
}

// The first row without an entry other than 0 on the diagonal.
template <typename T, typename I>
__device__ void diagonal(const SparseArgs& p) {
    const I* const first = (const I*)p.first;
    const I* const second = (const I*)p.second;
    for (i64 line = thread(); line < p.major; line += threads()) {
        const i64 begin = p.coordinates ? bound(second, p.entries, line, false) : (i64)second[line];
        const i64 end = p.coordinates ? bound(second, p.entries, line, true) : (i64)second[line + 1];
        bool found = false;
        for (i64 j = begin; j < end; ++j) {
            found = found || (first[j] == line && stored(((const T*)p.src)[j]));
        }
        if (!found) atomicMin((u64*)p.count, (u64)line);
    }
}

template <typename From, typename To>
__device__ void convert(const SparseArgs& p) {
    for (i64 j = thread(); j < p.entries; j += threads()) {
        ((To*)p.out)[j] = (To)((const From*)p.src)[j];
    }
}

typedef SparseArgs Args;

#define FOR_INDEX(I, type)                           \
    KERNEL(count_f16_##I, count<Half, type>)         \
    KERNEL(count_bf16_##I, count<Half, type>)        \
    KERNEL(count_f32_##I, count<Real, type>)         \
    KERNEL(count_f64_##I, count<Double, type>)       \
    KERNEL(count_c64_##I, count<Complex, type>)      \
    KERNEL(count_c128_##I, count<Wide, type>)        \
    KERNEL(write_f16_##I, write<Half, type>)         \
    KERNEL(write_bf16_##I, write<Half, type>)        \
    KERNEL(write_f32_##I, write<Real, type>)         \
    KERNEL(write_f64_##I, write<Double, type>)       \
    KERNEL(write_c64_##I, write<Complex, type>)      \
    KERNEL(write_c128_##I, write<Wide, type>)        \
    KERNEL(diagonal_f32_##I, diagonal<Real, type>)   \
    KERNEL(diagonal_f64_##I, diagonal<Double, type>) \
    KERNEL(diagonal_c64_##I, diagonal<Complex, type>) \
    KERNEL(diagonal_c128_##I, diagonal<Wide, type>)  \
    KERNEL(scatter_f16_##I, scatter<Half, type>)     \
    KERNEL(scatter_bf16_##I, scatter<Brain, type>)   \
    KERNEL(scatter_f32_##I, scatter<float, type>)    \
    KERNEL(scatter_f64_##I, scatter<double, type>)   \
    KERNEL(scatter_c64_##I, scatter<Single, type>)   \
    KERNEL(scatter_c128_##I, scatter<Twice, type>)   \
    KERNEL(sums_##I, sums<type>)                     \
    KERNEL(scan_##I, scan<type>)                     \
    KERNEL(expand_##I, expand<type>)                 \
    KERNEL(compress_##I, compress<type>)             \
    KERNEL(check_##I, check<type>)

FOR_INDEX(i32, int)
FOR_INDEX(i64, long long)
KERNEL(clear_2, clear<Half>)
KERNEL(clear_4, clear<Real>)
KERNEL(clear_8, clear<Double>)
KERNEL(clear_16, clear<Wide>)
KERNEL(narrow, convert<i64, int>)
KERNEL(widen, convert<int, i64>)
