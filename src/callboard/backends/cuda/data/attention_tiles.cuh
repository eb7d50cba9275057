// Tiles of the kernels of attention: rows in shared memory, and what a warp does with them.

#include "attention.cuh"

#ifndef N
#define N 1  // columns that a lane has: the head dim, 32 at a time
#endif

extern __shared__ double shared_memory[];

// ACROSS rows of an operand, 0 behind the last one.
template <typename Where>
__device__ void load_tile(T* tile, const void* source, int dim, int count, Where where) {
    const int warp = threadIdx.x / LANES, lane = threadIdx.x % LANES, step = padded(dim);
    for (int r = warp; r < ACROSS; r += WARPS) {
        const T* const from = (const T*)source + (r < count ? where(r) : 0);
        for (int c = lane; c < dim; c += LANES) tile[r * step + c] = r < count ? from[c] : narrow<T>((A)0);
    }
}

// TILE rows in A.
template <typename Where>
__device__ void load_rows(A* rows, const void* source, int dim, int count, Where where) {
    const int warp = threadIdx.x / LANES, lane = threadIdx.x % LANES;
    for (int r = warp; r < TILE; r += WARPS) {
        const T* const from = (const T*)source + (r < count ? where(r) : 0);
        for (int c = lane; c < dim; c += LANES) rows[r * dim + c] = r < count ? widen<A>(from[c]) : (A)0;
    }
}

// The products of the ROWS rows of this warp with the row of the tile that this lane has.
__device__ __forceinline__ void products(A (&found)[ROWS], const A* rows, const T* tile, int dim) {
    const int warp = threadIdx.x / LANES, lane = threadIdx.x % LANES;
    const T* const own = tile + lane * padded(dim);
    const A* const first = rows + warp * ROWS * dim;
#pragma unroll
    for (int r = 0; r < ROWS; ++r) found[r] = 0;
#pragma unroll 4
    for (int c = 0; c < dim; ++c) {
        const A x = widen<A>(own[c]);
#pragma unroll
        for (int r = 0; r < ROWS; ++r) found[r] += first[r * dim + c] * x;
    }
}

// sums[r] += weights[r] of each lane times that lane's row of the tile; a lane has every 32nd column.
__device__ __forceinline__ void add_rows(A (&sums)[ROWS][N], const A (&weights)[ROWS], const T* tile, int dim) {
    const int lane = threadIdx.x % LANES, step = padded(dim);
#pragma unroll 2
    for (int j = 0; j < ACROSS; ++j) {
        A weight[ROWS];
        bool any = false;
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
            weight[r] = __shfl_sync(0xffffffffu, weights[r], j);
            any = any || weight[r] != 0;
        }
        if (!any) continue;  // what is not seen may be NaN
#pragma unroll
        for (int n = 0; n < N; ++n) {
            const int c = lane + n * LANES;
            if (c >= dim) break;
            const A x = widen<A>(tile[j * step + c]);
#pragma unroll
            for (int r = 0; r < ROWS; ++r)
                if (weight[r] != 0) sums[r][n] += weight[r] * x;
        }
    }
}

__device__ __forceinline__ void store_row(void* target, i64 at, const A (&sums)[N], A factor, int dim) {
    const int lane = threadIdx.x % LANES;
#pragma unroll
    for (int n = 0; n < N; ++n) {
        const int c = lane + n * LANES;
        if (c < dim) ((T*)target)[at + c] = narrow<T>(sums[n] * factor);
    }
}

struct Place { int b, h, first; };

__device__ __forceinline__ Place place_of(int heads, int rows) {
    const int tiles = (rows + TILE - 1) / TILE;
    const int tile = blockIdx.x % tiles, rest = blockIdx.x / tiles;
    return {rest / heads, rest % heads, tile * TILE};
}

