// Norms with a scale for each channel: batch norm, instance norm, group norm, both ways. Arrays are [outer, channels, length],
// or with COLUMNS [outer, length, channels]; along `length` they are cut into `splits` of `chunk` elements, whose statistics
// are joined. Beside what dnn.cuh wants, there are defined: PARAM, the type of scale and bias; LANES, threads of a chunk;
// ROWS, chunks of a block; PACKS, packs of a chunk that a thread keeps; COLUMNS; BATCH, where all items are normalised
// together; SCALED, SHIFTED; CONSTANT, for statistics that did not follow from x; WIDE, where 32 bits cannot count the packs.

#include "numbers.cuh"
#include "dnn.cuh"

struct Args {
    const TYPE *x, *dy;
    const PARAM *scale, *bias;
    TYPE* out;
    ACC *mean, *inverse;  // by statistic
    const ACC* variance;
    ACC *running_mean, *running_variance;
    ACC *partial, *sums;  // two of each chunk and channel; two of each statistic
    PARAM *dscale, *dbias;
    i64 outer, channels, length, splits, chunk;
    i64 results, terms, inside, groups, per_item;  // terms: chunks that are joined; inside: channels of a group
    i64 packs, line_packs;                         // of the array; of a run of a channel, or of a row of channels
    double epsilon, momentum;
    Divider by_line, by_channels, by_length, by_inside, by_item;
};

#define EACH_ELEMENT _Pragma("unroll") for (int j = 0; j < VEC; j++)

// Which mean belongs to a channel of an outer index.
__device__ __forceinline__ i64 statistic(const Args& p, i64 outer, i64 channel) {
#if BATCH
    return channel;
#else
    return outer / p.per_item * p.groups + channel / p.inside;
#endif
}

__device__ __forceinline__ i64 size_of_chunk(const Args& p, i64 split) {
    const i64 left = p.length - split * p.chunk;
    return left < p.chunk ? left : p.chunk;
}

// -- statistics of chunks: mean and squared deviations, or the sums of dy and of dy * (x - mean) * inverse ----------------

#if !COLUMNS
#define CHUNK                                                                                 \
    const int lane = threadIdx.x % LANES;                                                     \
    const i64 row = (i64)blockIdx.x * ROWS + threadIdx.x / LANES;                             \
    const bool there = row < p.outer * p.channels * p.splits;                                 \
    const i64 split = row % p.splits, line = row / p.splits;                                  \
    const i64 channel = line % p.channels, outer = line / p.channels;                         \
    const i64 size = there ? size_of_chunk(p, split) : 0, packs = size / VEC;                 \
    const i64 begin = (line * p.length + split * p.chunk) / VEC;                              \
    const i64 place = (outer * p.splits + split) * p.channels + channel;                      \
    const i64 half = p.outer * p.splits * p.channels;

#define EACH_PACK                                       \
    _Pragma("unroll") for (int k = 0; k < PACKS; k++) { \
        const i64 at = lane + k * LANES;                \
        if (at >= packs) continue;

extern "C" __global__ void __launch_bounds__(LANES * ROWS) moments(const Args p) {
    CHUNK
    const Packed* const x = (const Packed*)p.x + begin;
    Packed own[PACKS];
    ACC mean = 0, away = 0;
    EACH_PACK
        own[k] = x[at];
        EACH_ELEMENT mean += wide(own[k].at[j]);
    }
    mean = sum_of<LANES>(mean) / (ACC)size;
    EACH_PACK
        EACH_ELEMENT {
            const ACC d = wide(own[k].at[j]) - mean;
            away += d * d;
        }
    }
    away = sum_of<LANES>(away);
    if (lane == 0 && there) {
        p.partial[place] = mean;
        p.partial[half + place] = away;
    }
}

extern "C" __global__ void __launch_bounds__(LANES * ROWS) gradients(const Args p) {
    CHUNK
    const Packed* const x = (const Packed*)p.x + begin;
    const Packed* const dy = (const Packed*)p.dy + begin;
    ACC mean = 0, inverse = 0, sum = 0, inner = 0;
    if (there) {
        const i64 at = statistic(p, outer, channel);
        mean = p.mean[at];
        inverse = p.inverse[at];
    }
    EACH_PACK
        const Packed v = x[at], d = dy[at];
        EACH_ELEMENT {
            sum += wide(d.at[j]);
            inner += wide(d.at[j]) * (wide(v.at[j]) - mean);
        }
    }
    sum = sum_of<LANES>(sum);
    inner = sum_of<LANES>(inner) * inverse;
    if (lane == 0 && there) {
        p.partial[place] = sum;
        p.partial[half + place] = inner;
    }
}
#else
const int LINES = 8;

#define CHUNK                                                                                            \
    __shared__ ACC parts[LINES][32][VEC];                                                                \
    const int lane = threadIdx.x % 32, line = threadIdx.x / 32;                                          \
    const i64 blocks = (p.channels / VEC + 31) / 32, rest = blockIdx.x / blocks;                         \
    const i64 first = (blockIdx.x % blocks * 32 + lane) * VEC;                                           \
    const i64 split = rest % p.splits, outer = rest / p.splits;                                          \
    const bool there = first < p.channels;                                                               \
    const i64 size = size_of_chunk(p, split), base = (outer * p.length + split * p.chunk) * p.channels + first; \
    const i64 place = (outer * p.splits + split) * p.channels + first;                                   \
    const i64 half = p.outer * p.splits * p.channels;

__device__ __forceinline__ void join_lines(ACC (&parts)[LINES][32][VEC], int line, int lane, ACC (&sum)[VEC]) {
    __syncthreads();
    EACH_ELEMENT parts[line][lane][j] = sum[j];
    __syncthreads();
    EACH_ELEMENT {
        sum[j] = parts[0][lane][j];
        for (int i = 1; i < LINES; i++) sum[j] += parts[i][lane][j];
    }
}

extern "C" __global__ void __launch_bounds__(32 * LINES) moments(const Args p) {
    CHUNK
    ACC mean[VEC] = {}, away[VEC] = {};
    if (there) {
#pragma unroll 4
        for (i64 row = line; row < size; row += LINES) {
            const Packed v = *(const Packed*)(p.x + base + row * p.channels);
            EACH_ELEMENT mean[j] += wide(v.at[j]);
        }
    }
    join_lines(parts, line, lane, mean);
    EACH_ELEMENT mean[j] /= (ACC)size;
    if (there) {
#pragma unroll 4
        for (i64 row = line; row < size; row += LINES) {
            const Packed v = *(const Packed*)(p.x + base + row * p.channels);
            EACH_ELEMENT {
                const ACC d = wide(v.at[j]) - mean[j];
                away[j] += d * d;
            }
        }
    }
    join_lines(parts, line, lane, away);
    if (line == 0 && there) {
        EACH_ELEMENT {
            p.partial[place + j] = mean[j];
            p.partial[half + place + j] = away[j];
        }
    }
}

extern "C" __global__ void __launch_bounds__(32 * LINES) gradients(const Args p) {
    CHUNK
    ACC sum[VEC] = {}, inner[VEC] = {}, mean[VEC], inverse[VEC];
    if (there) {
        EACH_ELEMENT {
            const i64 at = statistic(p, outer, first + j);
            mean[j] = p.mean[at];
            inverse[j] = p.inverse[at];
        }
#pragma unroll 4
        for (i64 row = line; row < size; row += LINES) {
            const Packed v = *(const Packed*)(p.x + base + row * p.channels);
            const Packed d = *(const Packed*)(p.dy + base + row * p.channels);
            EACH_ELEMENT {
                sum[j] += wide(d.at[j]);
                inner[j] += wide(d.at[j]) * (wide(v.at[j]) - mean[j]);
            }
        }
    }
    join_lines(parts, line, lane, sum);
    join_lines(parts, line, lane, inner);
    if (line == 0 && there) {
        EACH_ELEMENT {
            p.partial[place + j] = sum[j];
            p.partial[half + place + j] = inner[j] * inverse[j];
        }
    }
}
#endif

// -- chunks joined: 32 threads for each result ---------------------------------------------------------------------------

// Result r has `terms` chunks of `inside` channels each.
#define JOIN                                                                            \
    const int lane = threadIdx.x % 32;                                                  \
    const i64 r = (i64)blockIdx.x * 4 + threadIdx.x / 32;                               \
    const bool there = r < p.results;                                                   \
    const i64 count = there ? p.terms * p.inside : 0;                                   \
    const i64 item = r / p.groups, half = p.outer * p.splits * p.channels;              \
    const i64 first = item * p.terms * p.channels + r % p.groups * p.inside;

#define EACH_TERM                                             \
    for (i64 i = lane; i < count; i += 32) {                  \
        const i64 term = i / p.inside, own = i % p.inside;    \
        const i64 at = first + term * p.channels + own;

// Chan, Golub, LeVeque, "Updating Formulae and a Pairwise Algorithm for Computing Sample Variances", 1979.
extern "C" __global__ void __launch_bounds__(128) join_moments(const Args p) {
    JOIN
    ACC all = 0, mean = 0, away = 0;
    EACH_TERM
        const ACC size = (ACC)size_of_chunk(p, term % p.splits);
        all += size;
        mean += size * p.partial[at];
    }
    all = sum_of<32>(all);
    mean = sum_of<32>(mean) / all;
    EACH_TERM
        const ACC d = p.partial[at] - mean;
        away += p.partial[half + at] + (ACC)size_of_chunk(p, term % p.splits) * d * d;
    }
    away = sum_of<32>(away);
    if (lane == 0 && there) {
        p.mean[r] = mean;
        p.inverse[r] = ACC(1) / sqrt(away / all + (ACC)p.epsilon);
        if (p.running_mean) {
            const ACC share = (ACC)p.momentum;
            p.running_mean[r] = (ACC(1) - share) * p.running_mean[r] + share * mean;
            p.running_variance[r] = (ACC(1) - share) * p.running_variance[r] + share * (away / (all - ACC(1)));
        }
    }
}

extern "C" __global__ void __launch_bounds__(256) invert(const Args p) {
    for (i64 c = (i64)blockIdx.x * 256 + threadIdx.x; c < p.channels; c += (i64)gridDim.x * 256) {
        p.inverse[c] = ACC(1) / sqrt(p.variance[c] + (ACC)p.epsilon);
    }
}

// By what the gradient of each statistic is moved.
extern "C" __global__ void __launch_bounds__(128) join_gradients(const Args p) {
    JOIN
    ACC sum = 0, inner = 0;
    EACH_TERM
        ACC factor = 1;
#if SCALED
        factor = widen<ACC>(p.scale[r % p.groups * p.inside + own]);
#endif
        sum += factor * p.partial[at];
        inner += factor * p.partial[half + at];
    }
    sum = sum_of<32>(sum);
    inner = sum_of<32>(inner);
    if (lane == 0 && there) {
        const ACC elements = (ACC)(p.terms / p.splits * p.inside * p.length);
        p.sums[r] = sum / elements;
        p.sums[p.results + r] = inner / elements;
    }
}

// The gradients by scale and bias, of all chunks of each channel.
extern "C" __global__ void __launch_bounds__(128) join_parameters(const Args p) {
    const int lane = threadIdx.x % 32;
    const i64 c = (i64)blockIdx.x * 4 + threadIdx.x / 32;
    const i64 terms = c < p.channels ? p.outer * p.splits : 0, half = p.outer * p.splits * p.channels;
    ACC sum = 0, inner = 0;
    for (i64 i = lane; i < terms; i += 32) {
        sum += p.partial[i * p.channels + c];
        inner += p.partial[half + i * p.channels + c];
    }
    sum = sum_of<32>(sum);
    inner = sum_of<32>(inner);
    if (lane == 0 && c < p.channels) {
        p.dscale[c] = narrow<PARAM>(inner);
        p.dbias[c] = narrow<PARAM>(sum);
    }
}

// -- elements ------------------------------------------------------------------------------------------------------------

#if WIDE
typedef i64 Index;
#define OVER(n, known, number) ((n) / (number))
#else
typedef u32 Index;
#define OVER(n, known, number) known(n)
#endif

// Where the elements of pack i are: their channel (of the first), and their item.
#if COLUMNS
#define PLACE                                                                        \
    const Index row = OVER(i, p.by_line, p.line_packs);                              \
    const Index first = (i - row * (Index)p.line_packs) * VEC;                       \
    const Index outer = OVER(row, p.by_length, p.length);                            \
    const Index item = OVER(outer, p.by_item, p.per_item);
#define CHANNEL (first + j)
#else
#define PLACE                                                                        \
    const Index line = OVER(i, p.by_line, p.line_packs);                             \
    const Index outer = OVER(line, p.by_channels, p.channels);                       \
    const Index first = line - outer * (Index)p.channels;                            \
    const Index item = OVER(outer, p.by_item, p.per_item);
#define CHANNEL first
#endif
#if BATCH
#define STATISTIC(c) (c)
#else
#define STATISTIC(c) (item * (Index)p.groups + OVER(c, p.by_inside, p.inside))
#endif
#define EACH for (i64 n = (i64)blockIdx.x * 256 + threadIdx.x; n < p.packs; n += (i64)gridDim.x * 256)

extern "C" __global__ void __launch_bounds__(256) apply(const Args p) {
    EACH {
        const Index i = (Index)n;
        Packed v = ((const Packed*)p.x)[n];
        PLACE
        EACH_ELEMENT {
            const Index c = CHANNEL, s = STATISTIC(c);
            ACC y = (wide(v.at[j]) - p.mean[s]) * p.inverse[s];
#if SCALED
            y *= widen<ACC>(p.scale[c]);
#endif
#if SHIFTED
            y += widen<ACC>(p.bias[c]);
#endif
            v.at[j] = stored(y);
        }
        ((Packed*)p.out)[n] = v;
    }
}

extern "C" __global__ void __launch_bounds__(256) apply_back(const Args p) {
    EACH {
        const Index i = (Index)n;
        Packed d = ((const Packed*)p.dy)[n];
#if !CONSTANT
        const Packed v = ((const Packed*)p.x)[n];
#endif
        PLACE
        EACH_ELEMENT {
            const Index c = CHANNEL, s = STATISTIC(c);
            const ACC inverse = p.inverse[s];
            ACC g = wide(d.at[j]);
#if SCALED
            g *= widen<ACC>(p.scale[c]);
#endif
#if !CONSTANT
            g -= p.sums[s] + (wide(v.at[j]) - p.mean[s]) * inverse * p.sums[p.results + s];
#endif
            d.at[j] = stored(g * inverse);
        }
        ((Packed*)p.out)[n] = d;
    }
}
