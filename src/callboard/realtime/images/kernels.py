"""The ops of filters: what a CPU computes, and CUDA."""

from typing import Any

from callboard.kernel.nvrtc.decorated import kernel
from callboard.realtime.base.cpu.engines import engine

__all__ = ["TEXT", "THREADS", "across", "blocks_of", "correlated", "down"]

PACKAGE = "callboard.realtime.images"
WIDE, HIGH = 4, 4
"""Elements and rows of a thread: what neighbours need is read and converted once."""
THREADS, MAX_FRAMES = 128, 65535
TEXT = (
    f"#define WIDE {WIDE}\n#define HIGH {HIGH}\n"
    r"""
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

template <typename A> __device__ float one(
    const A *of, const float *weights, int e, int y, int h, int w, int c, int ky, int kx, int border, float fill
) {  // an element by the rules of borders; `of` is the frame
    const int channel = e % c, x = e / c;
    const long long row = (long long)w * c;
    float total = 0.0f;
    for (int dy = 0; dy < ky; ++dy) {
        const int from = place(y + dy - ky / 2, h, border);
        for (int dx = 0; dx < kx; ++dx) {
            const float weight = weights[dy * kx + dx];
            if (weight == 0.0f) continue;
            const int at = place(x + dx - kx / 2, w, border);
            const float value = from < 0 || at < 0 ? fill : (float)of[from * row + (long long)at * c + channel];
            total = fmaf(weight, value, total);
        }
    }
    return total;
}

template <typename A, int N> struct Values { alignas(4) A at[N]; };

// WIDE elements of each of HIGH rows, all of whose neighbours are inside of the frame.
template <typename A, typename R, int K, int C> __device__ void inside(
    const A *of, const float *weights, R *to, long long row, bool words
) {
    const int reach = K / 2 * C, count = WIDE + 2 * reach, vector = sizeof(A) == 1 ? 4 : 1;
    const int before = (reach + vector - 1) / vector * vector;
    float weight[K * K], total[HIGH][WIDE] = {};
    for (int i = 0; i < K * K; ++i) weight[i] = weights[i];
    #pragma unroll
    for (int line = 0; line < HIGH + K - 1; ++line) {
        float value[count];
        const A *from = of + (line - K / 2) * row;
        if (vector == 4 && words) {
            Values<A, WIDE + 2 * before> all;
            #pragma unroll
            for (int i = 0; i < (WIDE + 2 * before) / 4; ++i)
                ((unsigned *)all.at)[i] = ((const unsigned *)(from - before))[i];
            #pragma unroll
            for (int i = 0; i < count; ++i) value[i] = (float)all.at[i + before - reach];
        } else {
            #pragma unroll
            for (int i = 0; i < count; ++i) value[i] = (float)from[i - reach];
        }
        #pragma unroll
        for (int j = 0; j < HIGH; ++j) {
            const int dy = line - j;
            if (dy < 0 || dy >= K) continue;
            #pragma unroll
            for (int dx = 0; dx < K; ++dx)
                if (weight[dy * K + dx] != 0.0f)
                    #pragma unroll
                    for (int i = 0; i < WIDE; ++i)
                        total[j][i] = fmaf(weight[dy * K + dx], value[i + dx * C], total[j][i]);
        }
    }
    #pragma unroll
    for (int j = 0; j < HIGH; ++j) {
        Values<R, WIDE> done;
        for (int i = 0; i < WIDE; ++i) done.at[i] = stored<R>(total[j][i]);
        if (sizeof(R) == 1 && words) *(unsigned *)(to + j * row) = *(const unsigned *)done.at;
        else for (int i = 0; i < WIDE; ++i) to[j * row + i] = done.at[i];
    }
}

template <typename A, typename R> __global__ void filter(
    const A *image, const float *weights, R *result, int b, int h, int w, int c, int ky, int kx, int border, float fill
) {
    const int e = (blockIdx.x * blockDim.x + threadIdx.x) * WIDE, y = blockIdx.y * HIGH;
    const long long row = (long long)w * c;
    if (e >= row) return;
    const int beside = (kx / 2 * c + 3) / 4 * 4;
    const bool all = ky == kx && (kx == 3 || kx == 5) && (c == 1 || c == 3 || c == 4) && e >= beside &&
        e + WIDE + beside <= row && y >= ky / 2 && y + HIGH + ky / 2 <= h;
    for (int frame = blockIdx.z; frame < b; frame += gridDim.z) {
        const A *of = image + frame * (h * row);
        R *to = result + frame * (h * row);
        if (all) {
            const bool words = (row & 3) == 0 && (((size_t)of | (size_t)to) & 3) == 0;
            const A *at = of + y * row + e;
            R *into = to + y * row + e;
            if (kx == 3 && c == 1) inside<A, R, 3, 1>(at, weights, into, row, words);
            else if (kx == 3 && c == 3) inside<A, R, 3, 3>(at, weights, into, row, words);
            else if (kx == 3) inside<A, R, 3, 4>(at, weights, into, row, words);
            else if (c == 1) inside<A, R, 5, 1>(at, weights, into, row, words);
            else if (c == 3) inside<A, R, 5, 3>(at, weights, into, row, words);
            else inside<A, R, 5, 4>(at, weights, into, row, words);
            continue;
        }
        for (int j = 0; j < HIGH && y + j < h; ++j)
            for (int i = 0; i < WIDE && e + i < row; ++i)
                to[(y + j) * row + e + i] =
                    stored<R>(one<A>(of, weights, e + i, y + j, h, w, c, ky, kx, border, fill));
    }
}
"""
)


def blocks_of(b: int, h: int, w: int, c: int) -> tuple[int, int, int]:
    """The blocks of a launch: across, down, and frames."""
    return -(-w * c // (THREADS * WIDE)), -(-h // HIGH), min(b, MAX_FRAMES)


def _computed(image: Any, weights: Any, result: Any, border: int, fill: float) -> None:
    cpu = engine(f"{PACKAGE}.plain", f"{PACKAGE}.compiled")
    cpu.correlate(image, weights, result, int(border), float(fill))


_shape = "b: i32, h: i32, w: i32, c: i32, ky: i32, kx: i32, border: i32, fill: f32"


@kernel(
    f"in image: T[b, h, w, c], in weights: f32[ky, kx], out result: T[b, h, w, c], {_shape}",
    cuda=TEXT,
    name="filter<{T}, {T}>",
    grid=blocks_of,
    block=THREADS,
)
def correlated(image: Any, weights: Any, result: Any, border: int, fill: float) -> None:
    """All products at once."""
    _computed(image, weights, result, border, fill)


@kernel(
    f"in image: T[b, h, w, c], in weights: f32[ky, kx], out result: f32[b, h, w, c], {_shape}",
    cuda=TEXT,
    name="filter<{T}, float>",
    grid=blocks_of,
    block=THREADS,
)
def across(image: Any, weights: Any, result: Any, border: int, fill: float) -> None:
    """The first pass of a separable filter, to f32."""
    _computed(image, weights, result, border, fill)


@kernel(
    f"in image: f32[b, h, w, c], in weights: f32[ky, kx], inout result: T[b, h, w, c], {_shape}",
    cuda=TEXT,
    name="filter<float, {T}>",
    grid=blocks_of,
    block=THREADS,
)
def down(image: Any, weights: Any, result: Any, border: int, fill: float) -> None:
    """The second pass of a separable filter."""
    _computed(image, weights, result, border, fill)
