"""The ops of effects: what a CPU computes, and CUDA."""

from typing import Any

import numpy as np

from callboard.kernel.nvrtc.decorated import kernel
from callboard.realtime.base.cpu.engines import engine

__all__ = ["combined", "edges", "gray", "limited"]

PACKAGE = "callboard.realtime.video"
TEXT = r"""
template <typename T> __device__ T kept(float value) {
    if (sizeof(T) == 4) return (T)value;
    return (T)fminf(fmaxf(rintf(value), 0.0f), sizeof(T) == 1 ? 255.0f : 65535.0f);
}
template <typename T> __device__ float light(const T *pixel, int c) {
    return c < 3 ? (float)pixel[0] : 0.299f * pixel[0] + 0.587f * pixel[1] + 0.114f * pixel[2];
}

template <typename T> __global__ void combined(const T *a, const T *b, T *out, int n, float wa, float wb, int mode) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const float x = (float)a[i], y = (float)b[i];
    out[i] = kept<T>(mode == 0 ? wa * x + wb * y : mode == 1 ? fmaxf(x, y) : fabsf(x - y));
}

template <typename T> __global__ void limited(const T *a, T *out, int n, float level, float high) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = kept<T>((float)a[i] > level ? high : 0.0f);
}

template <typename T> __global__ void gray(const T *a, T *out, int n, int c) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const float value = light(a + (long long)i * c, c);
    for (int k = 0; k < c; ++k) out[(long long)i * c + k] = k < 3 ? kept<T>(value) : a[(long long)i * c + k];
}

template <typename T> __global__ void edges(const T *a, T *out, int h, int w, int c) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= h * w) return;
    float v[9];
    for (int n = 0; n < 9; ++n) {
        const int y = min(max(i / w + n / 3 - 1, 0), h - 1), x = min(max(i % w + n % 3 - 1, 0), w - 1);
        v[n] = light(a + ((long long)y * w + x) * c, c);
    }
    const float gx = v[2] + 2 * v[5] + v[8] - v[0] - 2 * v[3] - v[6];
    const float gy = v[6] + 2 * v[7] + v[8] - v[0] - 2 * v[1] - v[2];
    const T value = kept<T>(sqrtf(gx * gx + gy * gy));
    for (int k = 0; k < c; ++k) out[(long long)i * c + k] = k < 3 ? value : a[(long long)i * c + k];
}
"""


def _cpu() -> Any:
    return engine(f"{PACKAGE}.plain", f"{PACKAGE}.compiled")


@kernel(
    "in a: T[n], in b: T[n], out out: T[n], n: i32, wa: f32, wb: f32, mode: i32",
    cuda=TEXT,
    name="combined<{T}>",
    grid=lambda n: -(-n // 256),
)
def combined(a: Any, b: Any, out: Any, wa: float, wb: float, mode: int) -> None:
    """0: a weighted sum, 1: the greater one, 2: the distance."""
    _cpu().combined(a, b, out, np.float32(wa), np.float32(wb), int(mode))


@kernel(
    "in a: T[n], out out: T[n], n: i32, level: f32, high: f32",
    cuda=TEXT,
    name="limited<{T}>",
    grid=lambda n: -(-n // 256),
)
def limited(a: Any, out: Any, level: float, high: float) -> None:
    """``high`` above the level, and 0 elsewhere."""
    _cpu().limited(a, out, np.float32(level), np.float32(high))


@kernel("in a: T[n, c], out out: T[n, c], n: i32, c: i32", cuda=TEXT, name="gray<{T}>", grid=lambda n: -(-n // 256))
def gray(a: Any, out: Any) -> None:
    """Brightness in each colour; a fourth channel stays."""
    _cpu().gray(a, out)


@kernel(
    "in a: T[h, w, c], out out: T[h, w, c], h: i32, w: i32, c: i32",
    cuda=TEXT,
    name="edges<{T}>",
    grid=lambda h, w: -(-h * w // 256),
)
def edges(a: Any, out: Any) -> None:
    """Size of the brightness's gradient, by Sobel's kernels."""
    _cpu().edges(a, out)
