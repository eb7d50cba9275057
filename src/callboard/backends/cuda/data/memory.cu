// Strided fills and copies for items of 1, 2, 4, 8 and 16 bytes and up to 32 axes, and the conversion of one element.

#include "numbers.cuh"

struct Pair {  // 16 bytes of the alignment of their halves: a complex128 need not lie at a multiple of 16
    u64 low, high;
};

const int AXES = 32;

struct FillArgs {  // strides in items
    char* out;
    i64 count;
    Pair value;
    i64 extent[AXES], step[AXES];
    int axes;
};

struct CopyArgs {
    const char* src;
    char* out;
    i64 count;
    i64 extent[AXES], src_step[AXES], out_step[AXES];
    int axes;
};

// Axes "row" (adjacent in src) and "col" (adjacent in out) are exchanged tile by tile; the others are a batch.
struct TransposeArgs {
    const char* src;
    char* out;
    i64 rows, cols;
    i64 src_col, out_row;  // steps of the axis that is not adjacent
    i64 extent[AXES], src_step[AXES], out_step[AXES];
    u32 tiles;  // in all, < 2^31
    int axes;
};

template <typename T>
__device__ T item_of(const Pair& value) {
    return (T)value.low;
}
template <>
__device__ Pair item_of<Pair>(const Pair& value) {
    return value;
}

// I: type of the linear index; 32-bit divisions are several times faster than 64-bit ones.
template <typename T, typename I>
__device__ void fill(const FillArgs& a) {
    const T value = item_of<T>(a.value);
    const i64 threads = (i64)gridDim.x * blockDim.x;
#pragma unroll 1
    for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < a.count; i += threads) {
        I rest = (I)i;
        i64 to = 0;
#pragma unroll 1
        for (int k = a.axes - 1; k > 0; k--) {
            const I next = rest / (I)a.extent[k];
            to += (i64)(rest - next * (I)a.extent[k]) * a.step[k];
            rest = next;
        }
        to += (i64)rest * a.step[0];
        ((T*)a.out)[to] = value;
    }
}

template <typename T, typename I>
__device__ void copy(const CopyArgs& a) {
    const i64 threads = (i64)gridDim.x * blockDim.x;
#pragma unroll 1
    for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < a.count; i += threads) {
        I rest = (I)i;
        i64 from = 0, to = 0;
#pragma unroll 1
        for (int k = a.axes - 1; k > 0; k--) {
            const I next = rest / (I)a.extent[k];
            const i64 at = (i64)(rest - next * (I)a.extent[k]);
            from += at * a.src_step[k];
            to += at * a.out_step[k];
            rest = next;
        }
        from += (i64)rest * a.src_step[0];
        to += (i64)rest * a.out_step[0];
        ((T*)a.out)[to] = ((const T*)a.src)[from];
    }
}

// Tiles through shared memory, so that both the reads and the writes of a warp are adjacent. Block (32, 8). All loads
// of a thread are under way together, and what is behind them costs little: 32-bit divisions, once for a tile.
template <typename T>
__device__ void transpose(const TransposeArgs& a) {
    const int SIDE = sizeof(T) < 8 ? 64 : 32, DOWN = SIDE / 8, ALONG = SIDE / 32;
    const int GAP = sizeof(T) < 4 ? 4 / sizeof(T) : 1;  // so that a column lies in as many banks as it has words
    __shared__ T tile[SIDE][SIDE + GAP];
    const int x = threadIdx.x, y = threadIdx.y;
    const u32 across = (u32)((a.cols + SIDE - 1) / SIDE), down = (u32)((a.rows + SIDE - 1) / SIDE);
#pragma unroll 1
    for (u32 work = blockIdx.x; work < a.tiles; work += gridDim.x) {
        u32 rest = work / across;
        const i64 col0 = (i64)(work - rest * across) * SIDE;
        u32 next = rest / down;
        const i64 row0 = (i64)(rest - next * down) * SIDE;
        const T* src = (const T*)a.src + row0 + col0 * a.src_col;
        T* out = (T*)a.out + row0 * a.out_row + col0;
        rest = next;
#pragma unroll 1
        for (int k = a.axes - 1; k >= 0; k--) {
            next = rest / (u32)a.extent[k];
            const i64 at = rest - next * (u32)a.extent[k];
            src += at * a.src_step[k];
            out += at * a.out_step[k];
            rest = next;
        }
        const int rows = (int)(a.rows - row0 < SIDE ? a.rows - row0 : SIDE);
        const int cols = (int)(a.cols - col0 < SIDE ? a.cols - col0 : SIDE);
        T held[DOWN][ALONG];
#pragma unroll
        for (int j = 0; j < DOWN; j++) {
#pragma unroll
            for (int i = 0; i < ALONG; i++) {
                if (y + j * 8 < cols && x + i * 32 < rows) {
                    held[j][i] = src[x + i * 32 + (y + j * 8) * a.src_col];
                }
            }
        }
        __syncthreads();  // the last tile has been written
#pragma unroll
        for (int j = 0; j < DOWN; j++) {
#pragma unroll
            for (int i = 0; i < ALONG; i++) {
                tile[y + j * 8][x + i * 32] = held[j][i];
            }
        }
        __syncthreads();
#pragma unroll
        for (int j = 0; j < DOWN; j++) {
#pragma unroll
            for (int i = 0; i < ALONG; i++) {
                if (y + j * 8 < rows && x + i * 32 < cols) {
                    out[x + i * 32 + (y + j * 8) * a.out_row] = tile[x + i * 32][y + j * 8];
                }
            }
        }
    }
}

#define KERNELS(SIZE, T)                                                                                          \
    extern "C" __global__ void fill_##SIZE(const __grid_constant__ FillArgs a) { fill<T, u32>(a); }               \
    extern "C" __global__ void fill_##SIZE##_wide(const __grid_constant__ FillArgs a) { fill<T, u64>(a); }        \
    extern "C" __global__ void copy_##SIZE(const __grid_constant__ CopyArgs a) { copy<T, u32>(a); }               \
    extern "C" __global__ void copy_##SIZE##_wide(const __grid_constant__ CopyArgs a) { copy<T, u64>(a); }        \
    extern "C" __global__ void transpose_##SIZE(const __grid_constant__ TransposeArgs a) { transpose<T>(a); }

KERNELS(1, u8)
KERNELS(2, u16)
KERNELS(4, u32)
KERNELS(8, u64)
KERNELS(16, Pair)

// -- one element from one type to another ------------------------------------------------------------------------------

// The numbers are those of callboard.core.dtype.
enum Type { F16, BF16, F32, F64, C64, C128, I8, I16, I32, I64, U8, U16, U32, U64, BOOL, E4M3, E5M2, E2M1 };

// Floating types of a byte: OFP8 (E4M3 has no infinity, 0x7f is NaN) and MX (E2M1 has neither, in the low 4 bits).
struct Small {
    int mantissa, bias;
    u32 largest, sign, infinity, nan;
};

__device__ Small small_of(int type) {
    if (type == E4M3) {
        return {3, 7, 0x7e, 0x80, 0x7f, 0x7f};
    }
    return type == E5M2 ? Small{2, 15, 0x7b, 0x80, 0x7c, 0x7e} : Small{1, 1, 7, 8, 7, 8};
}

__device__ float from_small(u32 code, int type) {
    const Small s = small_of(type);
    const u32 magnitude = code & (s.sign - 1), one = 1u << s.mantissa;
    float value;
    if (type != E2M1 && magnitude > s.largest) {
        value = __uint_as_float(magnitude == s.infinity && type == E5M2 ? 0x7f800000u : 0x7fc00000u);
    } else {
        const int exponent = (int)(magnitude >> s.mantissa);
        const u32 digits = magnitude & (one - 1);
        value = exponent ? ldexpf((float)(one + digits), exponent - s.bias - s.mantissa)
                         : ldexpf((float)digits, 1 - s.bias - s.mantissa);
    }
    return code & s.sign ? -value : value;
}

__device__ u8 to_small(float f, int type) {  // to nearest, ties to even; what is too large becomes as ml_dtypes has it
    const Small s = small_of(type);
    const u32 bits = __float_as_uint(f), sign = bits >> 31 ? s.sign : 0;
    if (f != f) {
        return (u8)(type == E2M1 ? s.nan : sign | s.nan);
    }
    if ((bits & 0x7fffffff) == 0x7f800000) {
        return (u8)(sign | s.infinity);
    }
    int exponent = (int)(bits >> 23 & 0xff) - 127;
    exponent = exponent < 1 - s.bias ? 1 - s.bias : exponent;
    const u32 digits = (u32)rintf(ldexpf(fabsf(f), s.mantissa - exponent));
    const u32 one = 1u << s.mantissa;
    const u32 code = digits < one ? digits : ((u32)(exponent + s.bias) << s.mantissa) + digits - one;
    return (u8)(sign | (code > s.largest ? s.infinity : code));
}

struct Number {
    double re, im;  // of floating and complex types
    u64 whole;      // of integers, sign extended
    bool is_whole, is_signed;
};

__device__ Number load(const void* p, int type) {
    Number n = {0.0, 0.0, 0, false, false};
    switch (type) {
        case F16: n.re = widen<float>(*(const Half*)p); return n;
        case BF16: n.re = widen<float>(*(const Brain*)p); return n;
        case E4M3: case E5M2: case E2M1: n.re = from_small(*(const u8*)p, type); return n;
        case F32: n.re = *(const float*)p; return n;
        case F64: n.re = *(const double*)p; return n;
        case C64: n.re = ((const float*)p)[0]; n.im = ((const float*)p)[1]; return n;
        case C128: n.re = ((const double*)p)[0]; n.im = ((const double*)p)[1]; return n;
    }
    n.is_whole = true;
    n.is_signed = type >= I8 && type <= I64;
    switch (type) {
        case I8: n.whole = (u64)(i64)*(const signed char*)p; break;
        case I16: n.whole = (u64)(i64)*(const short*)p; break;
        case I32: n.whole = (u64)(i64)*(const int*)p; break;
        case I64: case U64: n.whole = *(const u64*)p; break;
        case U8: case BOOL: n.whole = *(const u8*)p; break;
        case U16: n.whole = *(const u16*)p; break;
        case U32: n.whole = *(const u32*)p; break;
    }
    return n;
}

extern "C" __global__ void convert(const void* src, void* out, int from, int to) {
    const Number n = load(src, from);
    const double re = !n.is_whole ? n.re : n.is_signed ? (double)(i64)n.whole : (double)n.whole;
    const float single = !n.is_whole ? (float)n.re : n.is_signed ? (float)(i64)n.whole : (float)n.whole;
    u64 whole = n.whole;
    if (!n.is_whole) {
        whole = to == U64 && re >= 9223372036854775808.0 ? (u64)re : (u64)(i64)re;
    }
    switch (to) {
        case F16: *(Half*)out = narrow<Half>(re); break;
        case BF16: *(Brain*)out = narrow<Brain>(single); break;
        case E4M3: case E5M2: case E2M1: *(u8*)out = to_small(single, to); break;
        case F32: *(float*)out = single; break;
        case F64: *(double*)out = re; break;
        case C64: ((float*)out)[0] = single; ((float*)out)[1] = (float)n.im; break;
        case C128: ((double*)out)[0] = re; ((double*)out)[1] = n.im; break;
        case I8: case U8: *(u8*)out = (u8)whole; break;
        case I16: case U16: *(u16*)out = (u16)whole; break;
        case I32: case U32: *(u32*)out = (u32)whole; break;
        case I64: case U64: *(u64*)out = whole; break;
        case BOOL: *(u8*)out = n.is_whole ? n.whole != 0 : n.re != 0.0 || n.im != 0.0; break;
    }
}
