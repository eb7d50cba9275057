// Rotary position embedding. Beside what dnn.cuh wants, there are defined: TABLE, the type of cosines and sines; BACK,
// to turn back; INTERLEAVED, for pairs of neighbours; PLACED, 1 where positions are given, of type PLACE.

#include "numbers.cuh"
#include "dnn.cuh"

struct Args {
    const TYPE* x;
    TYPE* out;
    const TABLE *cos, *sin;
    const PLACE* positions;
    u64* fault;  // how many positions are out of range, and one of them
    i64 outer, length, inner, width, pairs, rows;
    i64 per_batch;  // items before the places for each row of positions; 0 where one row serves all
    i64 x_outer, x_length, x_inner, out_outer, out_length, out_inner;  // steps
};

typedef Pack<TABLE, VEC> Angles;

// A thread turns VEC pairs, and copies its share of what lies behind them.
extern "C" __global__ void __launch_bounds__(256) rope(const Args p) {
    const i64 groups = p.pairs / VEC > 1 ? p.pairs / VEC : 1, rest = p.width - 2 * p.pairs;
    const i64 count = p.outer * p.length * p.inner * groups;
    for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += (i64)gridDim.x * blockDim.x) {
        const i64 group = i % groups, line = i / groups;
        const i64 inner = line % p.inner, place = line / p.inner % p.length, outer = line / p.inner / p.length;
        i64 row = place;
#if PLACED
        row = (i64)p.positions[(p.per_batch ? outer / p.per_batch * p.length : 0) + place];
        if (row < 0 || row >= p.rows) {
            if (group == 0 && inner == 0 && (p.per_batch ? outer % p.per_batch == 0 : outer == 0)) {
                if (atomicAdd(p.fault, 1ull) == 0) p.fault[1] = (u64)row;
            }
            row = 0;
        }
#endif
        const TYPE* const x = p.x + outer * p.x_outer + place * p.x_length + inner * p.x_inner;
        TYPE* const out = p.out + outer * p.out_outer + place * p.out_length + inner * p.out_inner;
        if (p.pairs) {
            const Angles cos = *(const Angles*)(p.cos + row * p.pairs + group * VEC);
            const Angles sin = *(const Angles*)(p.sin + row * p.pairs + group * VEC);
#if INTERLEAVED
            const i64 low = 2 * group * VEC, high = low + VEC;  // the two packs hold the pairs one after the other
#else
            const i64 low = group * VEC, high = p.pairs + low;
#endif
            Packed a = *(const Packed*)(x + low), b = *(const Packed*)(x + high);
#pragma unroll
            for (int j = 0; j < VEC; j++) {
#if INTERLEAVED
                TYPE& first = 2 * j < VEC ? a.at[2 * j % VEC] : b.at[2 * j % VEC];
                TYPE& second = 2 * j + 1 < VEC ? a.at[(2 * j + 1) % VEC] : b.at[(2 * j + 1) % VEC];
#else
                TYPE &first = a.at[j], &second = b.at[j];
#endif
                const ACC c = widen<ACC>(cos.at[j]), s = BACK ? -widen<ACC>(sin.at[j]) : widen<ACC>(sin.at[j]);
                const ACC u = wide(first), v = wide(second);
                first = stored(u * c - v * s);
                second = stored(u * s + v * c);
            }
            *(Packed*)(out + low) = a;
            *(Packed*)(out + high) = b;
        }
        for (i64 k = group; k < rest; k += groups) out[2 * p.pairs + k] = x[2 * p.pairs + k];
    }
}
