// Entries that have been sorted: taken in their new order, their duplicates counted or added up.

#include "sparse.cuh"
#include "sparse_numbers.cuh"

struct OrderArgs {
    const void* src;         // values
    void* out;
    const int* major;        // sorted
    const int* minor;
    const int* order;        // which entry each was
    int* places;             // [entries + 1]: how many places there are before each entry
    void* first_out;         // minors
    void* second_out;        // majors, or pointers
    const void* second;      // pointers of the unsorted entries
    i64 entries, lines, room;
    int coordinates;
};

__device__ bool begins(const OrderArgs& p, i64 j) {
    return j == 0 || p.major[j] != p.major[j - 1] || p.minor[j] != p.minor[j - 1];
}

__device__ void number_them(const OrderArgs& p) {
    for (i64 j = thread(); j < p.entries; j += threads()) ((int*)p.order)[j] = (int)j;
}

// 1 for each entry that is the first of its place, to be summed up.
__device__ void mark(const OrderArgs& p) {
    for (i64 j = thread(); j < p.entries; j += threads()) p.places[j + 1] = begins(p, j);
}

template <typename T, typename I>
__device__ void take(const OrderArgs& p) {
    for (i64 j = thread(); j < p.entries; j += threads()) {
        ((T*)p.out)[j] = ((const T*)p.src)[p.order[j]];
        ((I*)p.first_out)[j] = (I)p.minor[j];
        if (p.coordinates) ((I*)p.second_out)[j] = (I)p.major[j];
    }
}

template <typename T, typename I>
__device__ void merge(const OrderArgs& p) {
    for (i64 j = thread(); j < p.entries; j += threads()) {
        const i64 place = p.places[j];
        if (p.places[j + 1] == place || place >= p.room) continue;
        auto sum = wide(((const T*)p.src)[p.order[j]]);
        for (i64 k = j + 1; k < p.entries && p.places[k + 1] == p.places[k]; ++k) {
            sum = sum + wide(((const T*)p.src)[p.order[k]]);
        }
        put((T*)p.out + place, sum);
        ((I*)p.first_out)[place] = (I)p.minor[j];
        if (p.coordinates) ((I*)p.second_out)[place] = (I)p.major[j];
    }
    for (i64 i = thread(); !p.coordinates && i <= p.lines; i += threads()) {
        ((I*)p.second_out)[i] = (I)p.places[((const I*)p.second)[i]];
    }
}

typedef OrderArgs Args;

#define FOR_INDEX(I, index)                        \
    KERNEL(take_2_##I, take<Half, index>)          \
    KERNEL(take_4_##I, take<Real, index>)          \
    KERNEL(take_8_##I, take<Double, index>)        \
    KERNEL(take_16_##I, take<Wide, index>)         \
    KERNEL(merge_f16_##I, merge<Half, index>)      \
    KERNEL(merge_bf16_##I, merge<Brain, index>)    \
    KERNEL(merge_f32_##I, merge<float, index>)     \
    KERNEL(merge_f64_##I, merge<double, index>)    \
    KERNEL(merge_c64_##I, merge<Single, index>)    \
    KERNEL(merge_c128_##I, merge<Twice, index>)

FOR_INDEX(i32, int)
FOR_INDEX(i64, long long)
KERNEL(iota, number_them)
KERNEL(flag, mark)
