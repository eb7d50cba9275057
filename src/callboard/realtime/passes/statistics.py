"""``frame_statistics``: extremes, moments and a histogram with one read of the frame."""

from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from callboard.core.ref.handle import GpuRef
from callboard.device.client.handle import Device
from callboard.kernel.nvrtc.decorated import kernel
from callboard.realtime.base.checks import count, number
from callboard.realtime.base.cpu.engines import optional
from callboard.realtime.passes.passes import AnalysisPass

__all__ = ["FrameStatistics", "frame_statistics"]

BLOCKS = 264
"""Parts of a frame on a GPU, each with its own result."""
CHUNK = 1 << 16
"""Numbers that a CPU reads at a time: they stay in its cache for all sums."""

TEXT = r"""
__device__ void take(double x, double first, float low, float scale, int bins, double *m, unsigned *counts) {
    m[0] = x < m[0] || x != x ? x : m[0];
    m[1] = x > m[1] || x != x ? x : m[1];
    m[2] += x - first;
    m[3] += (x - first) * (x - first);
    const float at = ((float)x - low) * scale;
    if (at >= 0.0f && at <= (float)bins) atomicAdd(&counts[min((int)at, bins - 1)], 1u);
}
template <typename T> __global__ void partial(
    const T *a, double *moments, unsigned *histogram, long long n, int blocks, int bins, float low, float scale
) {
    __shared__ unsigned counts[4096];
    __shared__ double all[4][256];
    for (int k = threadIdx.x; k < bins; k += 256) counts[k] = 0;
    __syncthreads();
    const double first = (double)a[0];
    double m[4] = {first, first, 0.0, 0.0};
    const int many = 16 / sizeof(T);
    const long long whole = (size_t)a % 16 ? 0 : n / many, at = (long long)blockIdx.x * 256 + threadIdx.x;
    for (long long i = at; i < whole; i += (long long)blocks * 256) {
        const uint4 four = reinterpret_cast<const uint4 *>(a)[i];
        const T *values = reinterpret_cast<const T *>(&four);
        for (int k = 0; k < many; ++k) take((double)values[k], first, low, scale, bins, m, counts);
    }
    for (long long i = whole * many + at; i < n; i += (long long)blocks * 256)
        take((double)a[i], first, low, scale, bins, m, counts);
    for (int k = 0; k < 4; ++k) all[k][threadIdx.x] = m[k];
    for (int half = 128; half; half >>= 1) {
        __syncthreads();
        if (threadIdx.x < half) {
            const int i = threadIdx.x, j = i + half;
            const double x = all[0][j], y = all[1][j];
            all[0][i] = x < all[0][i] || x != x ? x : all[0][i];
            all[1][i] = y > all[1][i] || y != y ? y : all[1][i];
            all[2][i] += all[2][j];
            all[3][i] += all[3][j];
        }
    }
    __syncthreads();
    if (threadIdx.x < 4) moments[blockIdx.x * 4 + threadIdx.x] = all[threadIdx.x][0];
    for (int k = threadIdx.x; k < bins; k += 256) histogram[(long long)blockIdx.x * bins + k] = counts[k];
}
template <typename T> __global__ void joined(
    const T *a, const double *moments, const unsigned *histogram, double *out, long long n, int blocks, int bins,
    int size
) {
    for (int k = threadIdx.x; k < bins; k += 256) {
        double total = 0.0;
        for (int b = 0; b < blocks; ++b) total += histogram[(long long)b * bins + k];
        out[5 + k] = total;
    }
    if (threadIdx.x) return;
    double low = moments[0], high = moments[1], sum = 0.0, squares = 0.0;
    for (int b = 0; b < blocks; ++b) {
        const double x = moments[4 * b], y = moments[4 * b + 1];
        low = x < low || x != x ? x : low;
        high = y > high || y != y ? y : high;
        sum += moments[4 * b + 2];
        squares += moments[4 * b + 3];
    }
    const double variance = squares / n - sum / n * (sum / n);
    out[0] = low, out[1] = high, out[2] = (double)a[0] * n + sum, out[3] = (double)a[0] + sum / n;
    out[4] = variance == variance ? sqrt(fmax(variance, 0.0)) : variance;
}
"""


class FrameStatistics(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """What :func:`frame_statistics` finds. A NaN in the frame makes the first five NaN, and is in no bin.

    Attributes:
        min, max, sum, mean, std: Of all numbers; ``std`` is that of the population.
        histogram: Numbers in each bin, i64; the last bin includes its upper edge, and others are left out.
        edges: Of the bins.
    """

    min: float
    max: float
    sum: float
    mean: float
    std: float
    histogram: NDArray[np.int64]
    edges: NDArray[np.float64]


def frame_statistics(*inputs: str, bins: int = 256, low: float = 0.0, high: float = 256.0) -> AnalysisPass:
    """A pass for :class:`FrameStatistics`, which reads the frame once.

    Args:
        inputs: Name of what is read; none: the frame.
        bins: At most 4096, of equal widths.
        low, high: Edges of the first and the last one.
    """
    many, start, end = count("bins", bins, most=4096), number("low", low), number("high", high)
    if not start < end:
        raise ValueError(f"low is {low} and high is {high}; pass a low that is less")

    def run(device: Device, frame: GpuRef) -> GpuRef:
        flat = frame.reshape(-1)
        moments, histogram = device.empty((BLOCKS, 4), "f64"), device.empty((BLOCKS, many), "u32")
        partial(flat, moments, histogram, start, many / (end - start))
        found: GpuRef = joined(flat, moments, histogram, device.empty(5 + many, "f64"))
        return found

    def finish(found: NDArray[Any]) -> FrameStatistics:
        edges = np.linspace(start, end, many + 1)
        names = "min", "max", "sum", "mean", "std"
        figures = {name: float(value) for name, value in zip(names, found, strict=False)}
        return FrameStatistics(**figures, histogram=found[5:].astype("i8"), edges=edges)

    return AnalysisPass(run, inputs or ("frame",), finish)


@kernel(
    "in a: T[n], inout moments: f64[blocks, 4], inout histogram: u32[blocks, bins], n: i64, blocks: i32, bins: i32,"
    "low: f32, scale: f32",
    cuda=TEXT,
    name="partial<{T}>",
    grid=lambda blocks: blocks,
    block=256,
)
def partial(a: Any, moments: Any, histogram: Any, low: float, scale: float) -> None:
    """Extremes, sums less the first number, and bins of each part; a CPU has one part."""
    bins = histogram.shape[1]
    first = float(a[0])
    moments[:] = first, first, 0, 0
    histogram[:] = 0
    fast = optional("cv2", "NumPy") if a.dtype == np.uint8 else None
    for start in range(0, len(a), CHUNK):
        part = a[start : start + CHUNK]
        if part.dtype.kind == "u" and part.dtype.itemsize <= 2:
            if fast is not None:
                found = fast.calcHist([part], [0], None, [256], [0, 256]).reshape(-1)
            else:
                found = np.bincount(part)
            values = np.flatnonzero(found)
            counts = found[values].astype("i8")
        else:
            values, counts = part.astype("f8"), None
        away = values - first
        moments[0, 0] = np.minimum(moments[0, 0], values.min())
        moments[0, 1] = np.maximum(moments[0, 1], values.max())
        moments[0, 2] += away.sum() if counts is None else (away * counts).sum()
        moments[0, 3] += (away * away).sum() if counts is None else (away * away * counts).sum()
        at = (values.astype("f4") - np.float32(low)) * np.float32(scale)
        inside = (at >= 0) & (at <= bins)
        index = np.minimum(at[inside].astype("i8"), bins - 1)
        weights = None if counts is None else counts[inside]
        histogram[0] += np.bincount(index, weights, bins).astype("u4")


@kernel(
    "in a: T[n], in moments: f64[blocks, 4], in histogram: u32[blocks, bins], inout out: f64[size], n: i64,"
    "blocks: i32, bins: i32, size: i32",
    cuda=TEXT,
    name="joined<{T}>",
    grid=1,
    block=256,
)
def joined(a: Any, moments: Any, histogram: Any, out: Any) -> None:
    """All parts as one."""
    n, first = len(a), float(a[0])
    total, squares = moments[:, 2].sum(), moments[:, 3].sum()
    variance = squares / n - (total / n) ** 2
    low, high = moments[:, 0].min(), moments[:, 1].max()
    out[:5] = low, high, first * n + total, first + total / n, np.sqrt(np.maximum(variance, 0))
    out[5:] = histogram.sum(0, dtype="f8")
