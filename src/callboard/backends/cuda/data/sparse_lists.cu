// What is made of blocks that are stored: they are listed block row by block row, and written as the list says.
// Of a blocked-ELL matrix, whose slots may be padding, the list is made here.

#include "sparse.cuh"

struct ListArgs {
    const void* src;       // values of the blocks
    const void* indices;   // of a blocked-ELL matrix: the block column of each slot, -1 for padding
    void* places;          // [slots + 1]: how many blocks there are before each slot
    void* pointers;        // the list: where each block row begins in it,
    void* cols;            // the block column of each block,
    void* numbers;         // and which of the source's it is; null: they are in order
    void* out;             // values
    void* first_out;       // columns (block columns)
    void* second_out;      // pointers, or rows
    i64* count;
    i64 lines, width;      // block rows and block columns
    i64 down, across;      // of a block
    i64 each;              // slots in a block row of a blocked-ELL source; else 0
    i64 most;              // of a blocked-ELL result
    i64 blocks;            // of the source, padding included
    i64 entries;           // elements that the result has room for
    i64 unit;              // what a block counts for
    i64 row_step, col_step;  // from element to element of a block in the source
    int coordinates;
};

// 1 for each slot that is no padding, to be summed up.
template <typename I>
__device__ void mark(const ListArgs& p) {
    for (i64 s = thread(); s < p.blocks; s += threads()) ((I*)p.places)[s + 1] = ((const I*)p.indices)[s] >= 0;
}

// The list. Padding stands behind it, in a block row and a block column of its own.
template <typename I>
__device__ void list(const ListArgs& p) {
    const I* const indices = (const I*)p.indices;
    const I* const places = (const I*)p.places;
    const i64 found = places[p.blocks];
    for (i64 s = thread(); s < p.blocks; s += threads()) {
        const bool is = indices[s] >= 0;
        const i64 k = is ? (i64)places[s] : found + s - places[s];
        ((I*)p.cols)[k] = is ? indices[s] : (I)p.width;
        ((I*)p.numbers)[k] = (I)s;
    }
    for (i64 line = thread(); line <= p.lines; line += threads()) ((I*)p.pointers)[line] = places[line * p.each];
    if (thread() == 0) {
        ((I*)p.pointers)[p.lines + 1] = (I)p.blocks;
        *p.count = found * p.unit;
    }
}

template <typename I>
__device__ void number_them(const ListArgs& p) {
    for (i64 k = thread(); k < p.blocks; k += threads()) ((I*)p.numbers)[k] = (I)k;
}

// How many blocks the fullest block row has.
template <typename I>
__device__ void measure(const ListArgs& p) {
    const I* const pointers = (const I*)p.pointers;
    i64 most = 0;
    for (i64 line = thread(); line < p.lines; line += threads()) {
        const i64 held = pointers[line + 1] - pointers[line];
        most = held > most ? held : most;
    }
    for (int step = 16; step; step >>= 1) {
        const i64 other = __shfl_xor_sync(0xffffffffu, most, step);
        most = other > most ? other : most;
    }
    if ((threadIdx.x & 31) == 0) atomicMax((u64*)p.count, (u64)most);
}

// An element of a listed block.
template <typename T, typename I>
__device__ T element(const ListArgs& p, i64 k, i64 i, i64 j) {
    typedef typename Reach<I>::N N;
    const N b = p.numbers ? (N)((const I*)p.numbers)[k] : (N)k, side = (N)p.across, each = (N)p.each;
    const N corner = each ? (b / each * side * each + b % each) * side : b * (N)p.down * side;
    return ((const T*)p.src)[corner + (N)i * (N)p.row_step + (N)j * (N)p.col_step];
}

// Rows of entries: all of each block.
template <typename T, typename I>
__device__ void unpack(const ListArgs& p) {
    const I* const pointers = (const I*)p.pointers;
    typedef typename Reach<I>::N N;
    const N across = (N)p.across, size = (N)p.down * across;
    const i64 rows = p.lines * p.down, held = (i64)pointers[p.lines] * size, n = held < p.entries ? held : p.entries;
    for (i64 at = thread(); at < n; at += threads()) {
        const N e = (N)at, line = (N)bound(pointers, p.lines + 1, e / size, true) - 1;
        const N begin = (N)pointers[line], length = ((N)pointers[line + 1] - begin) * across;
        const N left = e - begin * size, i = left / length, along = left - i * length;
        const N k = begin + along / across, j = along - (k - begin) * across;
        ((T*)p.out)[e] = element<T, I>(p, k, i, j);
        ((I*)p.first_out)[e] = (I)((N)((const I*)p.cols)[k] * across + j);
        if (p.coordinates) ((I*)p.second_out)[e] = (I)(line * (N)p.down + i);
    }
    for (i64 row = thread(); !p.coordinates && row <= rows; row += threads()) {
        const i64 line = row / p.down, begin = pointers[line];
        const i64 length = row < rows ? (pointers[line + 1] - begin) * p.across : 0;
        ((I*)p.second_out)[row] = (I)(begin * (i64)size + row % p.down * length);
    }
}

// Blocks, one after the other.
template <typename T, typename I>
__device__ void line_up(const ListArgs& p) {
    const I* const pointers = (const I*)p.pointers;
    typedef typename Reach<I>::N N;
    const N across = (N)p.across, size = (N)p.down * across;
    const i64 held = (i64)pointers[p.lines] * size, n = held < p.entries ? held : p.entries;
    for (i64 at = thread(); at < n; at += threads()) {
        const N e = (N)at, k = e / size, left = e - k * size, i = left / across;
        ((T*)p.out)[e] = element<T, I>(p, k, i, left - i * across);
        if (left == 0) ((I*)p.first_out)[k] = ((const I*)p.cols)[k];
    }
    for (i64 line = thread(); line <= p.lines; line += threads()) ((I*)p.second_out)[line] = pointers[line];
}

// Blocks in rows of one length, padding behind them.
template <typename T, typename I>
__device__ void pad(const ListArgs& p) {
    const I* const pointers = (const I*)p.pointers;
    const i64 length = p.most * p.across;
    for (i64 e = thread(); e < p.entries; e += threads()) {
        const i64 row = e / length, at = e % length, line = row / p.down, i = row % p.down;
        const i64 slot = at / p.across, j = at % p.across, k = pointers[line] + slot;
        const bool is = k < pointers[line + 1];
        ((T*)p.out)[e] = is ? element<T, I>(p, k, i, j) : T{};
        if (i == 0 && j == 0) ((I*)p.first_out)[line * p.most + slot] = is ? ((const I*)p.cols)[k] : (I)-1;
    }
}

typedef ListArgs Args;

#define FOR_SIZE(S, type, index)               \
    KERNEL(unpack_##S, unpack<type, index>)    \
    KERNEL(line_up_##S, line_up<type, index>)  \
    KERNEL(pad_##S, pad<type, index>)

#define FOR_INDEX(index)               \
    FOR_SIZE(2, Half, index)           \
    FOR_SIZE(4, Real, index)           \
    FOR_SIZE(8, Double, index)         \
    FOR_SIZE(16, Wide, index)          \
    KERNEL(mark_slots, mark<index>)    \
    KERNEL(make_list, list<index>)     \
    KERNEL(iota, number_them<index>)   \
    KERNEL(fullest, measure<index>)

#include "sparse_indices.cuh"
