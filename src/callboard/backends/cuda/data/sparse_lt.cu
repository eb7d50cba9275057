// Structured matrices: which elements of a group or of a tile stay, whether a matrix has the pattern, and the way back
// from the compressed form.
// No headers: NVRTC finds CUDA's only where a toolkit is installed.

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef long long i64;

struct StructuredArgs {
    const void* x;
    void* out;
    int* verdict;
    i64 matrices, rows, groups;  // groups of a row; of tiles: rows of tiles
    i64 x_matrix, x_row, out_matrix, out_row;
    i64 room;         // bytes of a compressed matrix
    u16 choices[90];  // bit i * 4 + j: element [i, j] of a tile stays
};

// The bits of a type with EXPONENT and MANTISSA bits below the sign. NaN is as large as what is infinite.
template <typename B, int EXPONENT, int MANTISSA, bool INFINITE>
struct Float {
    typedef B Bits;
    static const int SIZE = 4;
    __device__ static u32 magnitude(B bits) {
        const u32 infinite = ((1u << EXPONENT) - 1) << MANTISSA, m = bits & ((1u << (EXPONENT + MANTISSA)) - 1);
        return INFINITE && m > infinite ? infinite : m;
    }
    __device__ static double value(B bits) {
        const u32 m = magnitude(bits), exponent = m >> MANTISSA, bias = (1u << (EXPONENT - 1)) - 1;
        const u32 mantissa = m & ((1u << MANTISSA) - 1), top = (1u << EXPONENT) - 1;
        if (INFINITE ? exponent == top : m == ((1u << (EXPONENT + MANTISSA)) - 1)) return 1e300;
        const u32 whole = exponent ? mantissa | 1u << MANTISSA : mantissa;
        return ldexp((double)whole, (int)(exponent ? exponent : 1) - (int)bias - MANTISSA);
    }
};

struct f16 : Float<u16, 5, 10, true> {};
struct bf16 : Float<u16, 8, 7, true> {};
struct f8_e4m3 : Float<u8, 4, 3, false> {};
struct f8_e5m2 : Float<u8, 5, 2, true> {};
struct f32 : Float<u32, 8, 23, true> { static const int SIZE = 2; };
struct i8 {
    typedef signed char Bits;
    static const int SIZE = 4;
    __device__ static u32 magnitude(Bits x) { return x < 0 ? -(int)x : x; }
    __device__ static double value(Bits x) { return magnitude(x); }
};

__device__ i64 thread() { return (i64)blockIdx.x * blockDim.x + threadIdx.x; }
__device__ i64 threads() { return (i64)gridDim.x * blockDim.x; }

// The larger half of each group; of equal magnitudes the first.
template <typename T>
__device__ void prune_strip(const StructuredArgs& p) {
    typedef typename T::Bits B;
    for (i64 at = thread(); at < p.matrices * p.rows * p.groups; at += threads()) {
        const i64 group = at % p.groups, row = at / p.groups % p.rows, matrix = at / p.groups / p.rows;
        const B* const x = (const B*)p.x + matrix * p.x_matrix + row * p.x_row + group * T::SIZE;
        B* const out = (B*)p.out + matrix * p.out_matrix + row * p.out_row + group * T::SIZE;
        B kept[T::SIZE];
#pragma unroll
        for (int i = 0; i < T::SIZE; ++i) {
            int larger = 0;
#pragma unroll
            for (int j = 0; j < T::SIZE; ++j) {
                const u32 mine = T::magnitude(x[i]), other = T::magnitude(x[j]);
                larger += other > mine || (other == mine && j < i);
            }
            kept[i] = larger < T::SIZE / 2 ? x[i] : B(0);
        }
#pragma unroll
        for (int i = 0; i < T::SIZE; ++i) out[i] = kept[i];
    }
}

// Of each tile the choice with the largest sum of magnitudes; of equal ones the first.
template <typename T>
__device__ void prune_tile(const StructuredArgs& p) {
    typedef typename T::Bits B;
    const int count = T::SIZE == 4 ? 90 : 2;
    for (i64 at = thread(); at < p.matrices * p.rows * p.groups; at += threads()) {
        const i64 group = at % p.groups, row = at / p.groups % p.rows, matrix = at / p.groups / p.rows;
        const B* const x = (const B*)p.x + matrix * p.x_matrix + row * T::SIZE * p.x_row + group * T::SIZE;
        B* const out = (B*)p.out + matrix * p.out_matrix + row * T::SIZE * p.out_row + group * T::SIZE;
        B tile[T::SIZE * T::SIZE];
        double size[T::SIZE * T::SIZE];
#pragma unroll
        for (int i = 0; i < T::SIZE * T::SIZE; ++i) {
            tile[i] = x[i / T::SIZE * p.x_row + i % T::SIZE];
            size[i] = T::value(tile[i]);
        }
        double most = -1;
        u32 best = 0;
        for (int c = 0; c < count; ++c) {
            double sum = 0;
#pragma unroll
            for (int i = 0; i < T::SIZE * T::SIZE; ++i) sum += p.choices[c] >> i & 1 ? size[i] : 0;
            if (sum > most) most = sum, best = p.choices[c];
        }
#pragma unroll
        for (int i = 0; i < T::SIZE * T::SIZE; ++i)
            out[i / T::SIZE * p.out_row + i % T::SIZE] = best >> i & 1 ? tile[i] : B(0);
    }
}

// Writes 1 where a group has more than half of it; the verdict was 0.
template <typename T>
__device__ void check(const StructuredArgs& p) {
    typedef typename T::Bits B;
    for (i64 at = thread(); at < p.matrices * p.rows * p.groups; at += threads()) {
        const i64 group = at % p.groups, row = at / p.groups % p.rows, matrix = at / p.groups / p.rows;
        const B* const x = (const B*)p.x + matrix * p.x_matrix + row * p.x_row + group * T::SIZE;
        int found = 0;
#pragma unroll
        for (int i = 0; i < T::SIZE; ++i) found += T::magnitude(x[i]) != 0;
        if (found > T::SIZE / 2) *p.verdict = 1;
    }
}

__device__ i64 bit(i64 from, int i, int to) { return (from >> i & 1) << to; }

// Where cuSPARSELt 0.8 keeps the 4 bits of a group on compute capability 9.0, counted in such 4 bits: blocks of 64 rows
// and 32 bytes of stored elements, along the rows first.
template <int ITEM>
__device__ i64 metadata_at(i64 row, i64 group, i64 groups) {
    if (ITEM == 1) {
        const i64 inside = bit(group, 0, 0) | bit(row, 3, 1) | bit(group, 3, 2) | bit(group, 1, 3) | bit(group, 2, 4)
            | (row & 7) << 5 | bit(row, 4, 8) | bit(row, 5, 9);
        return ((row >> 6) * ((groups + 15) / 16) + (group >> 4)) * 1024 + inside;
    }
    const i64 inside = bit(row, 3, 0) | bit(group, 2, 1) | bit(group, 0, 2) | bit(group, 1, 3)
        | (row & 7) << 4 | bit(row, 4, 7) | bit(row, 5, 8);
    return ((row >> 6) * ((groups + 7) / 8) + (group >> 3)) * 512 + inside;
}

// cuSPARSELt stores f32 with half a unit of TF32 added, so that tensor cores, which cut off the rest, round to nearest.
__device__ u32 unrounded(u32 bits) { return bits ? bits - 0x1000 : 0; }
__device__ u16 unrounded(u16 bits) { return bits; }
__device__ u8 unrounded(u8 bits) { return bits; }

// The whole matrix: x holds the stored elements row by row, then the metadata.
template <typename B, int SIZE>
__device__ void decompress(const StructuredArgs& p) {
    for (i64 at = thread(); at < p.matrices * p.rows * p.groups; at += threads()) {
        const i64 group = at % p.groups, row = at / p.groups % p.rows, matrix = at / p.groups / p.rows;
        const u8* const data = (const u8*)p.x + matrix * p.room;
        const B* const stored = (const B*)data + (row * p.groups + group) * (SIZE / 2);
        const i64 where = metadata_at<sizeof(B)>(row, group, p.groups);
        const u8* const metadata = data + p.rows * p.groups * (SIZE / 2) * (i64)sizeof(B);
        const int code = metadata[where >> 1] >> (where & 1) * 4 & 15;
        B* const out = (B*)p.out + matrix * p.out_matrix + row * p.out_row + group * SIZE;
#pragma unroll
        for (int i = 0; i < SIZE; ++i) {
            if (SIZE == 2) out[i] = (code == 14) == (i == 1) ? unrounded(stored[0]) : B(0);
            else out[i] = (code & 3) == i ? stored[0] : code >> 2 == i ? stored[SIZE / 2 - 1] : B(0);
        }
    }
}

extern "C" __global__ void decompress_1(const StructuredArgs p) { decompress<u8, 4>(p); }
extern "C" __global__ void decompress_2(const StructuredArgs p) { decompress<u16, 4>(p); }
extern "C" __global__ void decompress_4(const StructuredArgs p) { decompress<u32, 2>(p); }

#define EACH(T) \
    extern "C" __global__ void prune_strip_##T(const StructuredArgs p) { prune_strip<T>(p); } \
    extern "C" __global__ void prune_tile_##T(const StructuredArgs p) { prune_tile<T>(p); } \
    extern "C" __global__ void check_##T(const StructuredArgs p) { check<T>(p); }

EACH(f16)
EACH(bf16)
EACH(f32)
EACH(i8)
EACH(f8_e4m3)
EACH(f8_e5m2)
