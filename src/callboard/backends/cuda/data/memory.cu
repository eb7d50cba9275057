// Strided fills and copies for items of 1, 2, 4, 8 and 16 bytes and up to 32 axes, and the conversion of one element.

#include "numbers.cuh"
#include "convert.cuh"
#include "copying.cuh"

struct Pair {  // 16 bytes of the alignment of their halves: a complex128 need not lie at a multiple of 16
    u64 low, high;
};

struct FillArgs {  // strides in items
    char* out;
    i64 count;
    Pair value;
    i64 extent[AXES], step[AXES];
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

extern "C" __global__ void convert(const void* src, void* out, int from, int to) { convert_one(src, out, from, to); }
