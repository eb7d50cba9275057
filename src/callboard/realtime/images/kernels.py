"""The ops of filters: what a CPU computes, and CUDA."""

from typing import Any

from callboard.kernel.nvrtc.decorated import kernel
from callboard.realtime.base.engines import engine

__all__ = ["across", "correlated", "down"]

PACKAGE = "callboard.realtime.images"
TEXT = r"""
__device__ int place(int at, int extent, int border) {
    if (at >= 0 && at < extent) return at;
    if (border == 0) return -1;
    if (border == 1) return at < 0 ? 0 : extent - 1;
    const int period = border == 3 ? extent : border == 2 ? 2 * extent : extent > 1 ? 2 * extent - 2 : 1;
    at %= period;
    if (at < 0) at += period;
    if (border == 3) return at;
    const int other = border == 2 ? period - 1 - at : period - at;
    return at < other ? at : other;
}

template <typename R> __device__ R stored(float value) {
    if (sizeof(R) == 4) return (R)value;
    const float most = sizeof(R) == 1 ? 255.0f : 65535.0f;
    return (R)fminf(fmaxf(rintf(value), 0.0f), most);
}

template <typename A, typename R> __global__ void filter(
    const A *image, const float *weights, R *result, int b, int h, int w, int c, int ky, int kx, int border, float fill
) {
    const long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    const long long row = (long long)w * c;
    if (i >= (long long)b * h * row) return;
    const int channel = (int)(i % c), x = (int)(i / c % w), y = (int)(i / row % h);
    const A *of = image + i / (row * h) * (row * h) + channel;
    float total = 0.0f;
    for (int dy = 0; dy < ky; ++dy) {
        const int from = place(y + dy - ky / 2, h, border);
        for (int dx = 0; dx < kx; ++dx) {
            const float weight = weights[dy * kx + dx];
            if (weight == 0.0f) continue;
            const int at = place(x + dx - kx / 2, w, border);
            const float value = from < 0 || at < 0 ? fill : (float)of[from * row + (long long)at * c];
            total = fmaf(weight, value, total);
        }
    }
    result[i] = stored<R>(total);
}
"""


def _computed(image: Any, weights: Any, result: Any, border: int, fill: float) -> None:
    cpu = engine(f"{PACKAGE}.plain", f"{PACKAGE}.compiled")
    cpu.correlate(image, weights, result, int(border), float(fill))


_shape = "b: i32, h: i32, w: i32, c: i32, ky: i32, kx: i32, border: i32, fill: f32"


@kernel(
    f"in image: T[b, h, w, c], in weights: f32[ky, kx], out result: T[b, h, w, c], {_shape}",
    cuda=TEXT,
    name="filter<{T}, {T}>",
)
def correlated(image: Any, weights: Any, result: Any, border: int, fill: float) -> None:
    """All products at once."""
    _computed(image, weights, result, border, fill)


@kernel(
    f"in image: T[b, h, w, c], in weights: f32[ky, kx], out result: f32[b, h, w, c], {_shape}",
    cuda=TEXT,
    name="filter<{T}, float>",
)
def across(image: Any, weights: Any, result: Any, border: int, fill: float) -> None:
    """The first pass of a separable filter, to f32."""
    _computed(image, weights, result, border, fill)


@kernel(
    f"in image: f32[b, h, w, c], in weights: f32[ky, kx], inout result: T[b, h, w, c], {_shape}",
    cuda=TEXT,
    name="filter<float, {T}>",
)
def down(image: Any, weights: Any, result: Any, border: int, fill: float) -> None:
    """The second pass of a separable filter."""
    _computed(image, weights, result, border, fill)
