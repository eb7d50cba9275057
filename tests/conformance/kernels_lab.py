"""Kernels that the suites launch: each with a NumPy body and CUDA C++ text."""

from typing import Any

import numpy as np

import callboard as cb

Array = np.ndarray[Any, Any]

ROUND_UP = """
__device__ int at() { return blockIdx.x * blockDim.x + threadIdx.x; }
"""


@cb.kernel(
    "in x: f32[n], out y: f32[n], alpha: f32, n: i32",
    cuda=ROUND_UP
    + 'extern "C" __global__ void scaled(const float *x, float *y, float alpha, int n) {'
    + " if (at() < n) y[at()] = alpha * x[at()]; }",
)
def scaled(x: Array, y: Array, alpha: float) -> None:
    np.multiply(x, alpha, out=y)


@cb.kernel(
    "in x: T[...], inout y: T[...], a: T, size: i64, out count: i64[1]",
    cuda="""
    template<typename T> __global__ void axpy(const T *x, T *y, T a, long long size, long long *count) {
        const long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
        if (i < size) y[i] = y[i] + a * x[i];
        if (i == 0) count[0] = size;
    }
    """,
    name="axpy<{T}>",
    grid=lambda x: -(-x.size // 128),
    block=128,
)
def axpy(x: Array, y: Array, a: Any, size: int, count: Array) -> None:
    y += a * x
    count[0] = size


@cb.kernel(
    "in a: f32[m, k], in b: f32[k, n], out c: f32[m, n], out rows: f64[m], "
    "m: i32, k: i32, n: i32, flags: u32 = m * 2 + n",
    cuda="""
    extern "C" __global__ void product(const float *a, const float *b, float *c, double *rows, int m, int k, int n,
                                       unsigned flags) {
        const int col = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y * blockDim.y + threadIdx.y;
        if (row >= m || col >= n) return;
        float sum = 0;
        for (int i = 0; i < k; i++) sum += a[row * k + i] * b[i * n + col];
        c[row * n + col] = sum;
        if (col == 0) rows[row] = row + (double)flags;
    }
    """,
    block=(16, 16),
    grid=lambda m, n: (-(-n // 16), -(-m // 16)),
)
def product(a: Array, b: Array, c: Array, rows: Array, flags: int) -> None:
    np.matmul(a, b, out=c)
    rows[:] = np.arange(len(rows)) + float(flags)


@cb.kernel(
    "in x: f32[n], out sums: f32[(n + 255) // 256], n: i32",
    cuda="""
    extern "C" __global__ void block_sums(const float *x, float *sums, int n) {
        extern __shared__ float parts[];
        const int i = blockIdx.x * 256 + threadIdx.x;
        parts[threadIdx.x] = i < n ? x[i] : 0.0f;
        for (int step = 128; step; step /= 2) {
            __syncthreads();
            if (threadIdx.x < step) parts[threadIdx.x] += parts[threadIdx.x + step];
        }
        if (threadIdx.x == 0) sums[blockIdx.x] = parts[0];
    }
    """,
    grid=lambda sums: sums.size,
    shared=lambda: 256 * 4,
)
def block_sums(x: Array, sums: Array) -> None:
    padded = np.zeros(256 * len(sums), x.dtype)
    padded[: len(x)] = x
    padded.reshape(-1, 256).sum(1, out=sums)


NUMBERS = {
    "f32": ("float", 1.5),
    "f64": ("double", -2.25),
    "i8": ("signed char", -128),
    "i16": ("short", -32768),
    "i32": ("int", -(2**31)),
    "i64": ("long long", -(2**63)),
    "u8": ("unsigned char", 255),
    "u16": ("unsigned short", 65535),
    "u32": ("unsigned", 2**32 - 1),
    "u64": ("unsigned long long", 2**64 - 1),
    "bool": ("bool", True),
    "c64": ("float2", 1 - 2j),
    "c128": ("double2", 0.5 + 3j),
}
"""C type and a value of each dtype that a number may have without headers."""


def stored(dtype: str) -> "cb.Kernel":
    """A kernel that stores a number between two others, so that a slot of a wrong size shows."""
    c_type = NUMBERS[dtype][0]

    @cb.kernel(
        f"before: i8, value: {dtype}, after: f64, inout out: {dtype}[1], inout others: f64[2]",
        cuda=f'extern "C" __global__ void store(signed char before, {c_type} value, double after, {c_type} *out, '
        "double *others) { out[0] = value; others[0] = before; others[1] = after; }",
        grid=1,
        block=1,
        name="store",
    )
    def store(before: int, value: Any, after: float, out: Array, others: Array) -> None:
        out[0] = value
        others[:] = before, after

    return store
