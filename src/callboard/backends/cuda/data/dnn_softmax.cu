// Softmax and its logarithm, both ways. Beside what dnn.cuh wants, there are defined: LANES, threads of a row; ROWS, rows of a
// block; PACKS, packs of a row that a thread keeps in registers, 0 where it reads them again; LOG, for the logarithm.

#include "numbers.cuh"
#include "dnn.cuh"

struct Args {
    const TYPE *x, *dy;  // x is y in the backward pass
    TYPE* out;
    i64 rows, packs, length;     // packs: of a row; length: of a line
    i64 x_row, dy_row, out_row;  // steps, in elements
    i64 outer, inner;            // of lines that lie across: [outer, length, inner]
};

__device__ __forceinline__ float e_to(float x) { return expf(x); }
__device__ __forceinline__ double e_to(double x) { return exp(x); }
__device__ __forceinline__ float ln(float x) { return logf(x); }
__device__ __forceinline__ double ln(double x) { return log(x); }

#if PACKS
#define EACH_PACK                                                    \
    _Pragma("unroll") for (int k = 0; k < PACKS; k++) {              \
        const i64 at = lane + k * LANES;                             \
        if (at >= packs) continue;
#define X own[k]
#define DY grads[k]
#else
#define EACH_PACK for (i64 at = lane; at < packs; at += LANES) {
#define X x[at]
#define DY dy[at]
#endif
#define EACH_ELEMENT _Pragma("unroll") for (int j = 0; j < VEC; j++)

extern "C" __global__ void __launch_bounds__(LANES * ROWS) forward(const Args p) {
    const int lane = threadIdx.x % LANES;
    const i64 row = (i64)blockIdx.x * ROWS + threadIdx.x / LANES;
    const i64 packs = row < p.rows ? p.packs : 0;
    const Packed* const x = (const Packed*)(p.x + row * p.x_row);
    ACC most = lowest<ACC>(), sum = 0;
#if PACKS
    Packed own[PACKS];
    EACH_PACK
        own[k] = x[at];
        EACH_ELEMENT {
            const ACC v = wide(own[k].at[j]);
            most = v > most ? v : most;
        }
    }
    most = most_of<LANES>(most);
    EACH_PACK
        EACH_ELEMENT sum += e_to(wide(own[k].at[j]) - most);
    }
    sum = sum_of<LANES>(sum);
#else
    ACC own_most = most;
    EACH_PACK
        const Packed v = x[at];
        ACC here = own_most;
        EACH_ELEMENT here = wide(v.at[j]) > here ? wide(v.at[j]) : here;
        if (here > own_most) {
            sum = own_most == lowest<ACC>() ? sum : sum * e_to(own_most - here);
            own_most = here;
        }
        EACH_ELEMENT {
            const ACC one = wide(v.at[j]);
            sum += own_most == lowest<ACC>() ? (one == one ? ACC(0) : one) : e_to(one - own_most);
        }
    }
    most = most_of<LANES>(own_most);
    sum = sum_of<LANES>(own_most == lowest<ACC>() ? sum : sum * e_to(own_most - most));
#endif
#if LOG
    const ACC shift = ln(sum);
#else
    const ACC factor = ACC(1) / sum;
#endif
    Packed* const out = (Packed*)(p.out + row * p.out_row);
    EACH_PACK
        const Packed v = X;
        Packed found;
        EACH_ELEMENT {
            const ACC away = wide(v.at[j]) - most;
#if LOG
            found.at[j] = stored(away - shift);
#else
            found.at[j] = stored(e_to(away) * factor);
#endif
        }
        out[at] = found;
    }
}

extern "C" __global__ void __launch_bounds__(LANES * ROWS) backward(const Args p) {
    const int lane = threadIdx.x % LANES;
    const i64 row = (i64)blockIdx.x * ROWS + threadIdx.x / LANES;
    const i64 packs = row < p.rows ? p.packs : 0;
    const Packed* const x = (const Packed*)(p.x + row * p.x_row);
    const Packed* const dy = (const Packed*)(p.dy + row * p.dy_row);
#if PACKS
    Packed own[PACKS], grads[PACKS];
    EACH_PACK own[k] = x[at]; grads[k] = dy[at]; }
#endif
    ACC sum = 0;
    EACH_PACK
        const Packed d = DY;
#if !LOG
        const Packed y = X;
#endif
        EACH_ELEMENT {
#if LOG
            sum += wide(d.at[j]);
#else
            sum += wide(d.at[j]) * wide(y.at[j]);
#endif
        }
    }
    sum = sum_of<LANES>(sum);
    Packed* const out = (Packed*)(p.out + row * p.out_row);
    EACH_PACK
        const Packed d = DY, y = X;
        Packed found;
        EACH_ELEMENT {
#if LOG
            found.at[j] = stored(wide(d.at[j]) - e_to(wide(y.at[j])) * sum);
#else
            found.at[j] = stored(wide(y.at[j]) * (wide(d.at[j]) - sum));
#endif
        }
        out[at] = found;
    }
}

// Lines that lie across: 32 neighbours a block, 8 threads a line.
const int LINES = 8;
#define ACROSS                                                                                       \
    __shared__ ACC parts[LINES][33];                                                                 \
    const int column = threadIdx.x % 32, line = threadIdx.x / 32;                                    \
    const i64 blocks = (p.inner + 31) / 32, outer = blockIdx.x / blocks;                             \
    const i64 place = blockIdx.x % blocks * 32 + column, base = outer * p.length * p.inner + place;  \
    const bool inside = place < p.inner;

__device__ __forceinline__ ACC joined_lines(ACC (&parts)[LINES][33], int line, int column, ACC x, bool most) {
    __syncthreads();
    parts[line][column] = x;
    __syncthreads();
    x = parts[0][column];
#pragma unroll
    for (int i = 1; i < LINES; i++) {
        const ACC other = parts[i][column];
        x = most ? (other > x ? other : x) : x + other;
    }
    return x;
}

extern "C" __global__ void __launch_bounds__(32 * LINES) forward_across(const Args p) {
    ACROSS
    ACC most = lowest<ACC>(), sum = 0;
    if (inside) {
        for (i64 at = line; at < p.length; at += LINES) {
            const ACC v = wide(p.x[base + at * p.inner]);
            most = v > most ? v : most;
        }
    }
    most = joined_lines(parts, line, column, most, true);
    if (inside) {
        for (i64 at = line; at < p.length; at += LINES) sum += e_to(wide(p.x[base + at * p.inner]) - most);
    }
    sum = joined_lines(parts, line, column, sum, false);
    if (inside) {
        const ACC other = LOG ? ln(sum) : ACC(1) / sum;
        for (i64 at = line; at < p.length; at += LINES) {
            const ACC away = wide(p.x[base + at * p.inner]) - most;
            p.out[base + at * p.inner] = stored(LOG ? away - other : e_to(away) * other);
        }
    }
}

extern "C" __global__ void __launch_bounds__(32 * LINES) backward_across(const Args p) {
    ACROSS
    ACC sum = 0;
    if (inside) {
        for (i64 at = line; at < p.length; at += LINES) {
            const ACC d = wide(p.dy[base + at * p.inner]);
            sum += LOG ? d : d * wide(p.x[base + at * p.inner]);
        }
    }
    sum = joined_lines(parts, line, column, sum, false);
    if (inside) {
        for (i64 at = line; at < p.length; at += LINES) {
            const ACC d = wide(p.dy[base + at * p.inner]), y = wide(p.x[base + at * p.inner]);
            p.out[base + at * p.inner] = stored(LOG ? d - e_to(y) * sum : y * (d - sum));
        }
    }
}
