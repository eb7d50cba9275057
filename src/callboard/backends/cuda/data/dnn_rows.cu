// Norms of rows: layer norm and RMS norm, both ways. Beside what dnn.cuh wants, there are defined: PARAM, the type of scale
// and bias; LANES, threads of a row; ROWS, rows of a block; PACKS, packs of a row that a thread keeps in registers, 0 where
// it reads them again each time; CENTRED, SCALED, SHIFTED, KEEPS.

#include "numbers.cuh"
#include "dnn.cuh"

struct Args {
    const TYPE *x, *dy;
    const PARAM *scale, *bias;
    TYPE* out;           // dx
    ACC *mean, *inverse;
    ACC* partial;        // sums of columns, [2][slots][length]: of dy * (x - mean) * inverse, and of dy
    PARAM *dscale, *dbias;
    i64 rows, packs, length;           // packs: of a row
    i64 x_row, dy_row, out_row;        // steps, in elements
    i64 slots, share;                  // rows of partial; rows of x for each of them
    double epsilon;
};

typedef Pack<PARAM, VEC> Parameters;

#if PACKS
#define EACH_PACK                                                    \
    _Pragma("unroll") for (int k = 0; k < PACKS; k++) {              \
        const i64 at = lane + k * LANES;                             \
        if (at >= packs) continue;
#else
#define EACH_PACK for (i64 at = lane; at < packs; at += LANES) {
#endif
#define EACH_ELEMENT _Pragma("unroll") for (int j = 0; j < VEC; j++)

extern "C" __global__ void __launch_bounds__(LANES * ROWS) forward(const Args p) {
    const int lane = threadIdx.x % LANES;
    const i64 row = (i64)blockIdx.x * ROWS + threadIdx.x / LANES;
    const i64 packs = row < p.rows ? p.packs : 0;
    const Packed* const x = (const Packed*)(p.x + row * p.x_row);
    const ACC length = (ACC)p.length;
#if PACKS
    Packed own[PACKS];
    EACH_PACK own[k] = x[at]; }
#define OWN own[k]
#else
#define OWN x[at]
#endif
    ACC mean = 0;
#if CENTRED
    EACH_PACK
        const Packed v = OWN;
        EACH_ELEMENT mean += wide(v.at[j]);
    }
    mean = sum_of<LANES>(mean) / length;
#endif
    ACC inverse = 0;
    EACH_PACK
        const Packed v = OWN;
        EACH_ELEMENT {
            const ACC away = wide(v.at[j]) - mean;
            inverse += away * away;
        }
    }
    inverse = ACC(1) / sqrt(sum_of<LANES>(inverse) / length + (ACC)p.epsilon);
#if KEEPS
    if (lane == 0 && row < p.rows) {
#if CENTRED
        p.mean[row] = mean;
#endif
        p.inverse[row] = inverse;
    }
#endif
    Packed* const out = (Packed*)(p.out + row * p.out_row);
    EACH_PACK
        Packed v = OWN;
#if SCALED
        const Parameters scale = ((const Parameters*)p.scale)[at];
#endif
#if SHIFTED
        const Parameters bias = ((const Parameters*)p.bias)[at];
#endif
        EACH_ELEMENT {
            ACC y = (wide(v.at[j]) - mean) * inverse;
#if SCALED
            y *= widen<ACC>(scale.at[j]);
#endif
#if SHIFTED
            y += widen<ACC>(bias.at[j]);
#endif
            v.at[j] = stored(y);
        }
        out[at] = v;
    }
}

#undef OWN
#if PACKS
#define DY grads[k]
#define X own[k]
#else
#define DY dy[at]
#define X x[at]
#endif

// Blocks take rows by turns, and keep the sums of their columns in registers (with PACKS and SCALED).
extern "C" __global__ void __launch_bounds__(LANES * ROWS) backward(const Args p) {
    const int lane = threadIdx.x % LANES, slot = threadIdx.x / LANES;
    const ACC length = (ACC)p.length;
#if PACKS && SCALED
    ACC by_scale[PACKS][VEC] = {}, by_bias[PACKS][VEC] = {};
#endif
    for (i64 first = (i64)blockIdx.x * ROWS; first < p.rows; first += (i64)gridDim.x * ROWS) {
        const i64 row = first + slot;
        const i64 packs = row < p.rows ? p.packs : 0;
        const Packed* const x = (const Packed*)(p.x + row * p.x_row);
        const Packed* const dy = (const Packed*)(p.dy + row * p.dy_row);
#if PACKS
        Packed own[PACKS], grads[PACKS];
        EACH_PACK own[k] = x[at]; grads[k] = dy[at]; }
#endif
        ACC mean = 0, inverse = 0;
        if (row < p.rows) {
#if CENTRED
            mean = p.mean[row];
#endif
            inverse = p.inverse[row];
        }
        ACC sum = 0, inner = 0;
        EACH_PACK
            const Packed v = X, d = DY;
#if SCALED
            const Parameters scale = ((const Parameters*)p.scale)[at];
#endif
            EACH_ELEMENT {
                const ACC hat = (wide(v.at[j]) - mean) * inverse, given = wide(d.at[j]);
#if SCALED
                const ACC g = given * widen<ACC>(scale.at[j]);
#if PACKS
                by_scale[k][j] += given * hat;
                by_bias[k][j] += given;
#endif
#else
                const ACC g = given;
#endif
                sum += g;
                inner += g * hat;
            }
        }
#if CENTRED
        sum = sum_of<LANES>(sum) / length;
#endif
        inner = sum_of<LANES>(inner) / length;
        Packed* const out = (Packed*)(p.out + row * p.out_row);
        EACH_PACK
            const Packed v = X, d = DY;
#if SCALED
            const Parameters scale = ((const Parameters*)p.scale)[at];
#endif
            Packed found;
            EACH_ELEMENT {
                const ACC hat = (wide(v.at[j]) - mean) * inverse;
                ACC g = wide(d.at[j]);
#if SCALED
                g *= widen<ACC>(scale.at[j]);
#endif
                g -= hat * inner;
#if CENTRED
                g -= sum;
#endif
                found.at[j] = stored(g * inverse);
            }
            out[at] = found;
        }
    }
#if PACKS && SCALED
    typedef Pack<ACC, VEC> Sums;
    const i64 packs = p.packs, own_slot = (i64)blockIdx.x * ROWS + slot;
    EACH_PACK
        Sums scale, bias;
        EACH_ELEMENT {
            scale.at[j] = by_scale[k][j];
            bias.at[j] = by_bias[k][j];
        }
        ((Sums*)(p.partial + own_slot * p.length))[at] = scale;
#if CENTRED
        ((Sums*)(p.partial + (p.slots + own_slot) * p.length))[at] = bias;
#endif
    }
#endif
}

// The sums of columns where rows are too long for registers: 32 columns a block, `share` rows for each slot.
extern "C" __global__ void __launch_bounds__(256) columns(const Args p) {
    __shared__ ACC by_scale[8][33], by_bias[8][33];
    const int column = threadIdx.x % 32, line = threadIdx.x / 32;
    const i64 blocks = (p.length + 31) / 32, slot = blockIdx.x / blocks, at = blockIdx.x % blocks * 32 + column;
    const i64 end = (slot + 1) * p.share < p.rows ? (slot + 1) * p.share : p.rows;
    ACC scale = 0, bias = 0;
    if (at < p.length) {
        for (i64 row = slot * p.share + line; row < end; row += 8) {
            const ACC given = wide(p.dy[row * p.dy_row + at]);
            ACC hat = wide(p.x[row * p.x_row + at]);
#if CENTRED
            hat -= p.mean[row];
#endif
            scale += given * hat * p.inverse[row];
            bias += given;
        }
    }
    by_scale[line][column] = scale;
    by_bias[line][column] = bias;
    __syncthreads();
    if (line == 0 && at < p.length) {
        for (int i = 1; i < 8; i++) {
            scale += by_scale[i][column];
            bias += by_bias[i][column];
        }
        p.partial[slot * p.length + at] = scale;
#if CENTRED
        p.partial[(p.slots + slot) * p.length + at] = bias;
#endif
    }
}

// The gradients by scale and bias, from the sums of all slots: 32 columns a block.
extern "C" __global__ void __launch_bounds__(512) finish(const Args p) {
    __shared__ ACC by_scale[16][33], by_bias[16][33];
    const int column = threadIdx.x % 32, line = threadIdx.x / 32;
    const i64 at = (i64)blockIdx.x * 32 + column;
    ACC scale = 0, bias = 0;
    if (at < p.length) {
        for (i64 slot = line; slot < p.slots; slot += 16) {
            scale += p.partial[slot * p.length + at];
#if CENTRED
            bias += p.partial[(p.slots + slot) * p.length + at];
#endif
        }
    }
    by_scale[line][column] = scale;
    by_bias[line][column] = bias;
    __syncthreads();
    if (line == 0 && at < p.length) {
        for (int i = 1; i < 16; i++) {
            scale += by_scale[i][column];
            bias += by_bias[i][column];
        }
        p.dscale[at] = narrow<PARAM>(scale);
#if CENTRED
        p.dbias[at] = narrow<PARAM>(bias);
#endif
    }
}
