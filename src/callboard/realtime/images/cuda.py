"""Filters in CUDA: strips of vectors inside of a frame, and elements one by one at its edges."""

from callboard.core.layout import Layout

__all__ = ["HIGH", "TEXT", "THREADS", "blocks_of"]

HIGH = 16
"""Rows of a strip: a thread goes down them, and reads and converts what neighbours need once."""
THREADS, MAX_FRAMES = 128, 65535

TEXT = (
    f"#define HIGH {HIGH}\n#define THREADS {THREADS}\n"
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
    return (R)fminf(fmaxf(rintf(value), 0.0f), sizeof(R) == 1 ? 255.0f : 65535.0f);
}

// An element by the rules of borders; `of` is the frame. SPLIT: `weights` are a column and a row.
template <typename A, bool SPLIT> __device__ float one(
    const A *of, const float *weights, int e, int y, int h, int w, int c, int ky, int kx, int border, float fill
) {
    const int channel = e % c, x = e / c;
    const long long row = (long long)w * c;
    float total = 0.0f;
    for (int dy = 0; dy < ky; ++dy) {
        if (SPLIT && weights[dy] == 0.0f) continue;
        const int from = place(y + dy - ky / 2, h, border);
        float line = SPLIT ? 0.0f : total;
        for (int dx = 0; dx < kx; ++dx) {
            const float weight = weights[SPLIT ? ky + dx : dy * kx + dx];
            if (weight == 0.0f) continue;
            const int at = place(x + dx - kx / 2, w, border);
            const float value = from < 0 || at < 0 ? fill : (float)of[from * row + (long long)at * c + channel];
            line = fmaf(weight, value, line);
        }
        total = SPLIT ? fmaf(weights[dy], line, total) : line;
    }
    return total;
}

// Integers as floats without instructions of conversion: the bits of a small integer are those of a number of 2^-149
// times its value. Weights are 2^100 times as large in turn, and sums 2^-49 times, as exact as others.
#define LARGER 1.2676506002282294e30f
#define BACK 562949953421312.0f
template <int N> struct alignas(4 * N) Words { unsigned at[N]; };

template <typename A> __device__ float value_of(const unsigned *words, int byte) {
    const unsigned word = words[byte / 4];
    if (sizeof(A) == 4) return __uint_as_float(word);
    return __uint_as_float(__byte_perm(word, 0u, sizeof(A) == 1 ? 0x4440u | byte % 4 : byte % 4 ? 0x4432u : 0x4410u));
}

#ifdef __CUDACC__
__device__ unsigned pack_u8(int high, int low, unsigned above) {  // bytes, within their range; the last two of `above`
    unsigned found;
    asm("cvt.pack.sat.u8.s32.b32 %0, %1, %2, %3;" : "=r"(found) : "r"(high), "r"(low), "r"(above));
    return found;
}
__device__ unsigned pack_u16(int high, int low) {
    unsigned found;
    asm("cvt.pack.sat.u16.s32 %0, %1, %2;" : "=r"(found) : "r"(high), "r"(low));
    return found;
}
#endif

template <typename R> __device__ unsigned word_of(const float *total, float scale) {  // the nearest integers
    if constexpr (sizeof(R) == 4) return __float_as_uint(total[0]);
    else {
        int whole[4 / sizeof(R)];
        #pragma unroll
        for (int i = 0; i < 4 / sizeof(R); ++i) whole[i] = __float2int_rn(total[i] * scale);
        if constexpr (sizeof(R) == 2) return pack_u16(whole[1], whole[0]);
        else return pack_u8(whole[1], whole[0], pack_u8(whole[3], whole[2], 0u));
    }
}

// The frame's middle, in vectors of elements that have all their neighbours, and the elements around it.
struct Parts {
    int row, wide, first, last, top, vectors, strips;
    long long edge;
    __device__ Parts(int h, int w, int c, int ky, int kx, int size) {
        row = w * c, wide = size == 1 ? (ky > 3 || kx > 3 ? 8 : 16) : 16 / (size == 2 ? 2 : 4);
        const int reach = kx / 2 * c;
        first = (reach + wide - 1) / wide * wide, last = row > reach ? (row - reach) / wide * wide : 0, top = ky / 2;
        if (last <= first || h <= 2 * top) first = last = row, top = 0;  // there is no middle
        vectors = (last - first) / wide, strips = (h - 2 * top + HIGH - 1) / HIGH;
        edge = 2LL * top * row + (h - 2LL * top) * (row - (last - first));
    }
    __device__ void at(long long n, int h, int *e, int *y) const {  // which element of the edge
        const long long ends = 2LL * top * row, beside = row - (last - first);
        if (n < ends) {
            const int line = n / row;
            *e = n % row, *y = line < top ? line : h - 2 * top + line;
        } else {
            const int i = (n - ends) % beside;
            *e = i < first ? i : i - first + last, *y = top + (int)((n - ends) / beside);
        }
    }
};

template <typename A, int K, int C, int V> __device__ void add(
    float *sums, const float *value, const float *weight, bool first
) {
    #pragma unroll
    for (int i = 0; i < V && first; ++i) sums[i] = 0.0f;
    #pragma unroll
    for (int dx = 0; dx < K; ++dx)
        if (sizeof(A) < 4 || weight[dx] != 0.0f)  // 0 times infinity is not 0
            #pragma unroll
            for (int i = 0; i < V; ++i) sums[i] = fmaf(weight[dx], value[i + dx * C], sums[i]);
}

// V elements of each of some rows, which go through the sums of the K results that they are part of.
template <typename A, int K, int C, int V, bool SPLIT, bool ALIGNED> __device__ void strip(
    const A *__restrict__ of, const float *__restrict__ weights, A *__restrict__ to, long long row, int rows
) {
    constexpr int REACH = K / 2 * C, N = V * sizeof(A) / 4, SIDE = (REACH * sizeof(A) + 3) / 4, ALL = N + 2 * SIDE;
    constexpr int WEIGHTS = SPLIT ? 2 * K : K * K;
    float weight[WEIGHTS], total[K][V];
    #pragma unroll
    for (int i = 0; i < WEIGHTS; ++i)
        weight[i] = weights[i] * (!ALIGNED || sizeof(A) == 4 ? 1.0f : SPLIT && i < K ? BACK : LARGER);
    const A *from = of - K / 2 * row;
    unsigned words[ALL];
    auto load = [&] {
        const unsigned *at = (const unsigned *)from;
        #pragma unroll
        for (int i = 0; i < SIDE; ++i) words[i] = at[i - SIDE], words[SIDE + N + i] = at[N + i];
        const Words<N> middle = *(const Words<N> *)at;
        #pragma unroll
        for (int i = 0; i < N; ++i) words[SIDE + i] = middle.at[i];
    };
    if (ALIGNED) load();
    for (int begin = 0; begin < rows + K - 1; begin += K) {
        #pragma unroll
        for (int s = 0; s < K; ++s) {
            const int t = begin + s;
            if (t >= rows + K - 1) return;
            float value[V + 2 * REACH];
            #pragma unroll
            for (int i = 0; i < V + 2 * REACH; ++i)
                if (ALIGNED) value[i] = value_of<A>(words, 4 * SIDE + (i - REACH) * (int)sizeof(A));
                else value[i] = (float)from[i - REACH];
            from += row;
            if (ALIGNED && t + 1 < rows + K - 1) load();
            float line[V];
            if (SPLIT) add<A, K, C, V>(line, value, weight + K, true);
            #pragma unroll
            for (int dy = 0; dy < K; ++dy) {
                float *sums = total[(s - dy + K) % K];
                if (!SPLIT) add<A, K, C, V>(sums, value, weight + dy * K, dy == 0);
                else if (sizeof(A) < 4 || weight[dy] != 0.0f)
                    #pragma unroll
                    for (int i = 0; i < V; ++i) sums[i] = fmaf(weight[dy], line[i], dy == 0 ? 0.0f : sums[i]);
                else if (dy == 0)
                    #pragma unroll
                    for (int i = 0; i < V; ++i) sums[i] = 0.0f;
            }
            if (t < K - 1) continue;
            const float *done = total[(s + 1) % K];
            if (ALIGNED) {
                Words<N> packed;
                #pragma unroll
                for (int i = 0; i < N; ++i) packed.at[i] = word_of<A>(done + i * (4 / sizeof(A)), SPLIT ? 1.0f : BACK);
                *(Words<N> *)to = packed;
            } else {
                #pragma unroll
                for (int i = 0; i < V; ++i) to[i] = stored<A>(done[i]);
            }
            to += row;
        }
    }
}

// K, C: the extents of the kernel and the channels, each with code of its own; 0: any. SPLIT: `weights` are a column of
// K and a row.
template <typename A, typename R, int K, int C, bool SPLIT> __global__ void __launch_bounds__(
    THREADS, K == 5 && !SPLIT ? 4 : 5
) filter(
    const A *image, const float *weights, R *result, int b, int h, int w, int c, int ky, int kx, int border, float fill
) {
    if (SPLIT) ky = kx;
    const Parts parts(h, w, c, ky, kx, sizeof(A));
    const int edges = (parts.edge + blockDim.x - 1) / blockDim.x;
    const long long row = parts.row;
    // Blocks of edges, which wait much, and blocks of strips, which compute, are mixed.
    const int edge = (long long)blockIdx.x * edges / gridDim.x, next = (blockIdx.x + 1LL) * edges / gridDim.x;
    bool small = true;
    for (int i = 0; K > 0 && i < (SPLIT ? 2 * K : K * K); ++i) small = small && fabsf(weights[i]) < 1e8f;
    for (int frame = blockIdx.z; frame < b; frame += gridDim.z) {
        const A *of = image + frame * (h * row);
        R *to = result + frame * (h * row);
        if (edge < next) {
            const long long n = (long long)edge * blockDim.x + threadIdx.x;
            if (n >= parts.edge) return;
            int e, y;
            parts.at(n, h, &e, &y);
            to[y * row + e] = stored<R>(one<A, SPLIT>(of, weights, e, y, h, w, c, ky, kx, border, fill));
            continue;
        }
        const unsigned n = (blockIdx.x - edge) * blockDim.x + threadIdx.x;
        if (n >= (unsigned)parts.vectors * parts.strips) return;
        const int y = parts.top + (int)(n / parts.vectors) * HIGH;
        const int e = parts.first + (int)(n % parts.vectors) * parts.wide;
        const int rows = min(HIGH, h - parts.top - y), bytes = parts.wide * (int)sizeof(A);
        const bool aligned = small && row * sizeof(A) % bytes == 0 && ((size_t)of | (size_t)to) % bytes == 0;
        const A *at = of + y * row + e;
        R *into = to + y * row + e;
        if constexpr (K > 0) {
            constexpr int V = sizeof(A) == 1 && K > 3 ? 8 : 16 / sizeof(A);
            if (aligned) strip<A, K, C, V, SPLIT, true>(at, weights, into, row, rows);
            else strip<A, K, C, V, SPLIT, false>(at, weights, into, row, rows);
            continue;
        }
        at -= ky / 2 * row + kx / 2 * c;
        for (int j = 0; j < rows; ++j, at += row, into += row)
            for (int i = 0; i < parts.wide; i += 4) {
                float total[4] = {};
                for (int dy = 0; dy < ky; ++dy)
                    for (int dx = 0; dx < kx; ++dx) {
                        const float weight = weights[dy * kx + dx];
                        if (weight == 0.0f) continue;
                        const A *here = at + dy * row + dx * c + i;
                        #pragma unroll
                        for (int a = 0; a < 4; ++a) total[a] = fmaf(weight, (float)here[a], total[a]);
                    }
                #pragma unroll
                for (int a = 0; a < 4; ++a) into[i + a] = stored<R>(total[a]);
            }
    }
}
"""
)


def blocks_of(image: Layout, ky: int, kx: int) -> tuple[int, int, int]:
    """The blocks of a launch, as ``Parts`` of the text divides a frame: those of its edges and of its strips; frames.

    Args:
        image: ``[b, h, w, c]``.
        ky, kx: Extents of the kernel.
    """
    b, h, w, c = image.shape
    size, row, reach, top = image.dtype.itemsize, w * c, kx // 2 * c, ky // 2
    wide = (8 if max(ky, kx) > 3 else 16) if size == 1 else 16 // size
    first, last = -(-reach // wide) * wide, max(0, row - reach) // wide * wide
    inside, high = last - first, h - 2 * top
    if inside <= 0 or high <= 0:
        return -(-h * row // THREADS), 1, min(b, MAX_FRAMES)
    edge, vectors = h * row - high * inside, inside // wide * -(-high // HIGH)
    return -(-edge // THREADS) + -(-vectors // THREADS), 1, min(b, MAX_FRAMES)
