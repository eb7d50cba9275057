// Parallel primitives that move elements by indices, whatever the elements are.
// None of CUDA's headers: NVRTC finds them only where a toolkit is installed.

#include "cub.cuh"

struct alignas(16) Pair { u64 low, high; };

// -- indices -----------------------------------------------------------------------------------------------------------

template <typename I>
__device__ void iota(const CubArgs& p) {
    for (i64 i = thread(); i < p.n; i += threads()) ((I*)p.out)[i] = (I)i;
}

// Where each row of m elements begins.
template <typename I>
__device__ void begins(const CubArgs& p) {
    for (i64 i = thread(); i < p.n; i += threads()) ((I*)p.out)[i] = (I)(i * p.m);
}

// The index of each element in its row of m.
template <typename I>
__device__ void local(const CubArgs& p) {
    for (i64 i = thread(); i < p.n; i += threads()) ((i64*)p.out)[i] = (i64)((const I*)p.a)[i] % p.m;
}

// The row of each element.
template <typename I>
__device__ void row(const CubArgs& p) {
    for (i64 i = thread(); i < p.n; i += threads()) ((u32*)p.out)[i] = (u32)((i64)((const I*)p.a)[i] / p.m);
}

// The segment of each element: m + 1 offsets.
template <typename I, typename O>
__device__ void segment(const CubArgs& p) {
    for (i64 i = thread(); i < p.n; i += threads()) {
        const i64 at = bound_of<O, i64, true>((const O*)p.b, p.m + 1, (i64)((const I*)p.a)[i]) - 1;
        ((u32*)p.out)[i] = (u32)(at < 0 ? 0 : at < p.m ? at : p.m - 1);
    }
}

// How long each run is that begins at an index.
template <typename I>
__device__ void lengths(const CubArgs& p) {
    const i64 found = *(const i64*)p.d, last = items(p);
    const I* at = (const I*)p.a;
    for (i64 i = thread(); i < last; i += threads()) {
        ((i64*)p.out)[i] = (i + 1 < found ? (i64)at[i + 1] : p.m) - (i64)at[i];
    }
}

// -- elements ----------------------------------------------------------------------------------------------------------

template <typename T, typename I>
__device__ void take(const CubArgs& p) {
    const i64 last = items(p);
    const I* at = (const I*)p.b;
    for (i64 i = thread(); i < last; i += threads()) ((T*)p.out)[i] = ((const T*)p.a)[at[i]];
}

template <typename T, typename I>
__device__ void head(const CubArgs& p) {
    const i64 last = items(p);
    for (i64 i = thread(); i < last; i += threads()) ((T*)p.out)[i] = ((const T*)p.a)[i];
}

// The first k of each row of m, and where they were.
template <typename T, typename I>
__device__ void top(const CubArgs& p) {
    const I* at = (const I*)p.b;
    for (i64 i = thread(); i < p.n; i += threads()) {
        const i64 from = (i64)at[i / p.k * p.m + i % p.k];
        ((T*)p.out)[i] = ((const T*)p.a)[from];
        ((i64*)p.second)[i] = from % p.m;
    }
}

// Parts one behind the other; room: of each part's indices. d: how many are in the first and in the second.
template <typename T, typename I>
__device__ void parts(const CubArgs& p) {
    const i64* found = (const i64*)p.d;
    const i64 first = found[0], second = first + found[1];
    for (i64 i = thread(); i < p.n; i += threads()) {
        const I* at = (const I*)p.b;
        const i64 from = i < first ? at[i] : i < second ? at[p.room + i - first] : at[2 * p.room + i - second];
        ((T*)p.out)[i] = ((const T*)p.a)[from];
    }
}

// The sizes of k parts.
template <typename I>
__device__ void sizes(const CubArgs& p) {
    const i64* found = (const i64*)p.d;
    if (thread()) return;
    i64* out = (i64*)p.out;
    out[0] = found[0];
    if (p.k == 3) out[1] = found[1];
    out[p.k - 1] = p.n - found[0] - (p.k == 3 ? found[1] : 0);
}

// Each of m elements as often as its length says: b has the sums of the lengths.
template <typename T, typename I>
__device__ void repeat(const CubArgs& p) {
    const i64 last = items(p);
    for (i64 i = thread(); i < last; i += threads()) {
        ((T*)p.out)[i] = ((const T*)p.a)[bound_of<i64, i64, true>((const i64*)p.b, p.m, i)];
    }
}

#define KERNEL(name, ...) extern "C" __global__ void name(const __grid_constant__ CubArgs p) { __VA_ARGS__(p); }
#define FOR_INDEX(name, I)          \
    KERNEL(iota_##name, iota<I>)     \
    KERNEL(begins_##name, begins<I>) \
    KERNEL(local_##name, local<I>)   \
    KERNEL(row_##name, row<I>)       \
    KERNEL(segment_##name##_i32, segment<I, int>) \
    KERNEL(segment_##name##_i64, segment<I, i64>) \
    KERNEL(sizes_##name, sizes<I>)   \
    KERNEL(lengths_##name, lengths<I>)
#define FOR_BOTH(size, T, name, I)              \
    KERNEL(take_##size##_##name, take<T, I>)     \
    KERNEL(head_##size##_##name, head<T, I>)     \
    KERNEL(top_##size##_##name, top<T, I>)       \
    KERNEL(repeat_##size##_##name, repeat<T, I>) \
    KERNEL(parts_##size##_##name, parts<T, I>)
#define FOR_SIZE(size, T)          \
    FOR_BOTH(size, T, i32, int)     \
    FOR_BOTH(size, T, i64, i64)

FOR_INDEX(i32, int)
FOR_INDEX(i64, i64)
FOR_SIZE(1, u8)
FOR_SIZE(2, u16)
FOR_SIZE(4, u32)
FOR_SIZE(8, u64)
FOR_SIZE(16, Pair)
