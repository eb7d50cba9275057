"""Kernels for the tensor memory accelerator and the tensor cores of Hopper."""

import ml_dtypes
import numpy as np

__all__ = ["DTYPES", "EVERY_BLACKWELL", "EVERY_HOPPER", "SUMS", "TILED", "product_text"]

DTYPES = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2}
"""Factors by PTX's name."""

EVERY_HOPPER = """
#include <callboard/hopper.cuh>
using namespace callboard;
extern "C" __global__ void every(const __grid_constant__ TensorMap m, float *x) {
    extern __shared__ float s[];
    __shared__ Barrier b;
    copy_async<4>(s, x); copy_async<8>(s, x); copy_async<16>(s, x); copy_async_l2(s, x); copy_commit(); copy_wait<0>();
    barrier_init(&b, 1); barrier_init_fence(); barrier_arrive(&b); barrier_expect(&b, 16); barrier_wait(&b, 0);
    async_fence(); bulk_load(s, x, 16, &b); bulk_store(x, s, 16); bulk_commit(); bulk_wait_read<0>(); bulk_wait<0>();
    tensor_prefetch(&m);
    tensor_load_1d(s, &m, 0, &b); tensor_load_2d(s, &m, 0, 0, &b); tensor_load_3d(s, &m, 0, 0, 0, &b);
    tensor_load_4d(s, &m, 0, 0, 0, 0, &b); tensor_load_5d(s, &m, 0, 0, 0, 0, 0, &b);
    tensor_multicast_2d(s, &m, 0, 0, &b, 3);
    tensor_store_1d(&m, s, 0); tensor_store_2d(&m, s, 0, 0); tensor_store_3d(&m, s, 0, 0, 0);
    tensor_store_4d(&m, s, 0, 0, 0, 0); tensor_store_5d(&m, s, 0, 0, 0, 0, 0);
    cluster_sync();
    x[0] = cluster_load(s, (cluster_rank() + 1) % cluster_blocks());
    cluster_store(s, 0, 1u);
    registers_up<240>(); registers_down<40>();
}
"""
EVERY_BLACKWELL = """
#include <callboard/blackwell.cuh>
using namespace callboard;
extern "C" __global__ void every(float *x, unsigned long long d) {
    __shared__ unsigned at;
    __shared__ unsigned long long b;
    unsigned v[8];
    tensor_memory_take(&at, 64); tensor_memory_no_more();
    tensor_product_f16(at, d, d, 1, true); tensor_product_f8(at, d, d, 1, false); tensor_commit(&b);
    tensor_fence_before(); __syncthreads(); tensor_fence_after();
    tensor_memory_load(v, at); tensor_memory_wait();
    x[threadIdx.x] = v[0] + v[7];
    tensor_memory_give(at, 64);
}
"""
TILED = """
#include <callboard/hopper.cuh>
using namespace callboard;
extern "C" __global__ void tiles(const __grid_constant__ TensorMap x, const __grid_constant__ TensorMap y) {
    __shared__ alignas(128) float tile[8 * 16];
    __shared__ Barrier ready;
    if (threadIdx.x == 0) {
        barrier_init(&ready, 1);
        barrier_init_fence();
    }
    __syncthreads();
    const int col = blockIdx.x * 16, row = blockIdx.y * 8;
    if (threadIdx.x == 0) {
        barrier_expect(&ready, sizeof(tile));
        tensor_load_2d(tile, &x, col, row, &ready);
    }
    barrier_wait(&ready, 0);
    for (int i = threadIdx.x; i < 8 * 16; i += blockDim.x) tile[i] = 2 * tile[i] + 1;
    async_fence();
    __syncthreads();
    if (threadIdx.x == 0) {
        tensor_store_2d(&y, tile, col, row);
        bulk_commit();
        bulk_wait<0>();
    }
}
"""
"""Tiles of 8 x 16 by tensor maps; those at the rim reach beyond the array."""

SUMS = """
#include <callboard/hopper.cuh>
using namespace callboard;
extern "C" __global__ void sums(const unsigned *x, unsigned *y) {
    __shared__ alignas(16) unsigned part[64];
    __shared__ Barrier ready;
    if (threadIdx.x == 0) {
        barrier_init(&ready, 1);
        barrier_init_fence();
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        barrier_expect(&ready, sizeof(part));
        bulk_load(part, x + 64 * blockIdx.x, sizeof(part), &ready);
    }
    barrier_wait(&ready, 0);
    cluster_sync();
    unsigned sum = 0;
    for (unsigned rank = 0; rank < cluster_blocks(); rank++) sum += cluster_load(&part[threadIdx.x], rank);
    y[64 * blockIdx.x + threadIdx.x] = sum;
    cluster_sync();
}
"""
"""Each block of a cluster adds up what all its blocks have loaded in bulk."""

PRODUCT = """
#include <callboard/hopper.cuh>
#include <callboard/wgmma.cuh>
using namespace callboard;
extern "C" __global__ void product(const __grid_constant__ TensorMap a, const __grid_constant__ TensorMap b, float *c) {
    __shared__ alignas(1024) unsigned char first[64 * 128];
    __shared__ alignas(1024) unsigned char second[{n} * 128];
    __shared__ Barrier ready;
    if (threadIdx.x == 0) {
        barrier_init(&ready, 1);
        barrier_init_fence();
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        barrier_expect(&ready, sizeof(first) + sizeof(second));
        tensor_load_2d(first, &a, 0, 0, &ready);
        tensor_load_2d(second, &b, 0, 0, &ready);
    }
    barrier_wait(&ready, 0);
    float d[{n} / 2];
    const unsigned long long at = wgmma_descriptor<128>(first), beside = wgmma_descriptor<128>(second);
    wgmma_fence();
    for (int k = 0; k < 4; k++) wgmma_m64n{n}k{terms}_{name}(d, at + 2 * k, beside + 2 * k, k > 0);
    wgmma_commit();
    wgmma_wait<0>();
    const int t = threadIdx.x, row = 16 * (t / 32) + t % 32 / 4;
    for (int j = 0; j < {n} / 8; j++)
        for (int i = 0; i < 4; i++) c[(row + 8 * (i / 2)) * {n} + 8 * j + 2 * (t % 4) + i % 2] = d[4 * j + i];
}
"""


def product_text(name: str, n: int) -> str:
    """``c = a @ b.T`` with a of 64 rows and b of n, each of 128 bytes: 64 terms of 16 bits, or 128 of 8."""
    terms = 16 if np.dtype(DTYPES[name]).itemsize == 2 else 32
    return PRODUCT.replace("{n}", str(n)).replace("{terms}", str(terms)).replace("{name}", name)
