// Cross-entropy, both ways. Beside what dnn.cuh wants, there are defined: LANES, threads of a row; ROWS, rows of a block;
// SOFT, for a target of probabilities, else INDEX, the type of its classes; WEIGHTED, with PARAM, the type of the weights;
// SMOOTH, for smoothed labels; MEAN; EACH, for a loss of each row.

#include "numbers.cuh"
#include "dnn.cuh"

struct Args {
    const TYPE *x, *dloss, *shares;  // shares: the probabilities
    const INDEX* classes_at;
    const PARAM* weight;
    TYPE *loss, *dx;
    ACC *log_sum, *losses, *weights;  // of each row
    ACC* totals;                      // of the rows' weights, and of the classes'
    u64* fault;                       // how many classes are out of range, and one of them
    i64 rows, packs, classes;         // packs: of a row
    i64 x_row, shares_row, dx_row;    // steps, in elements
    i64 ignored;
    double smoothing;
};

__device__ __forceinline__ float e_to(float x) { return expf(x); }
__device__ __forceinline__ double e_to(double x) { return exp(x); }
__device__ __forceinline__ float ln(float x) { return logf(x); }
__device__ __forceinline__ double ln(double x) { return log(x); }

#define EACH_PACK for (i64 at = lane; at < packs; at += LANES)
#define EACH_ELEMENT _Pragma("unroll") for (int j = 0; j < VEC; j++)

__device__ __forceinline__ ACC weight_of(const Args& p, i64 c) {
#if WEIGHTED
    return widen<ACC>(p.weight[c]);
#else
    return ACC(1);
#endif
}

// The class of a row, -1 where it counts for nothing.
__device__ __forceinline__ i64 class_of(const Args& p, i64 row, bool tells) {
    const i64 found = (i64)p.classes_at[row];
    if (found == p.ignored) return -1;
    if (found < 0 || found >= p.classes) {
        if (tells && atomicAdd(p.fault, 1ull) == 0) p.fault[1] = (u64)found;
        return -1;
    }
    return found;
}

extern "C" __global__ void __launch_bounds__(LANES * ROWS) forward(const Args p) {
    const int lane = threadIdx.x % LANES;
    const i64 row = (i64)blockIdx.x * ROWS + threadIdx.x / LANES;
    const bool inside = row < p.rows;
    const i64 packs = inside ? p.packs : 0;
    const Packed* const x = (const Packed*)(p.x + row * p.x_row);
    ACC own_most = lowest<ACC>(), sum = 0;
    EACH_PACK {
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
    const ACC most = most_of<LANES>(own_most);
    sum = sum_of<LANES>(own_most == lowest<ACC>() ? sum : sum * e_to(own_most - most));
    const ACC log_sum = ln(sum) + most;
    const ACC smoothing = (ACC)p.smoothing, even = smoothing / (ACC)p.classes;
    ACC loss = 0, weight = 1;
#if SOFT || SMOOTH
    ACC all = 0;  // of every class by its share
#if SOFT
    const Packed* const shares = (const Packed*)(p.shares + row * p.shares_row);
#endif
    EACH_PACK {
        const Packed v = x[at];
#if SOFT
        const Packed s = shares[at];
#endif
        EACH_ELEMENT {
#if SOFT
            const ACC share = wide(s.at[j]) * (ACC(1) - smoothing) + even;
#else
            const ACC share = even;
#endif
            if (share != ACC(0)) all += share * weight_of(p, at * VEC + j) * (log_sum - wide(v.at[j]));
        }
    }
    loss = sum_of<LANES>(all);
#endif
    if (lane == 0 && inside) {
#if !SOFT
        const i64 found = class_of(p, row, true);
        weight = found < 0 ? ACC(0) : weight_of(p, found);
        const ACC own = found < 0 ? ACC(0) : weight * (log_sum - wide(p.x[row * p.x_row + found]));
        loss = found < 0 ? ACC(0) : own * (ACC(1) - smoothing) + loss;
#endif
        p.log_sum[row] = log_sum;
#if EACH
        p.loss[row] = stored(loss);
#else
        p.losses[row] = loss;
        p.weights[row] = weight;
#endif
    }
}

// The loss of all rows; one block.
extern "C" __global__ void __launch_bounds__(1024) total(const Args p) {
    ACC loss = 0, weight = 0;
    for (i64 row = threadIdx.x; row < p.rows; row += 1024) {
        loss += p.losses[row];
        weight += p.weights[row];
    }
    loss = sum_of<1024>(loss);
    weight = sum_of<1024>(weight);
    if (threadIdx.x == 0) p.loss[0] = stored(MEAN ? loss / weight : loss);
}

// What the gradients of all rows share; one block.
extern "C" __global__ void __launch_bounds__(1024) weigh(const Args p) {
    ACC of_rows = 0, of_classes = 0;
    for (i64 row = threadIdx.x; row < p.rows; row += 1024) {
#if SOFT
        of_rows += ACC(1);
#else
        const i64 found = class_of(p, row, true);
        of_rows += found < 0 ? ACC(0) : weight_of(p, found);
#endif
    }
    for (i64 c = threadIdx.x; c < p.classes; c += 1024) of_classes += weight_of(p, c);
    of_rows = sum_of<1024>(of_rows);
    of_classes = sum_of<1024>(of_classes);
    if (threadIdx.x == 0) {
        p.totals[0] = of_rows;
        p.totals[1] = of_classes;
    }
}

extern "C" __global__ void __launch_bounds__(LANES * ROWS) backward(const Args p) {
    const int lane = threadIdx.x % LANES;
    const i64 row = (i64)blockIdx.x * ROWS + threadIdx.x / LANES;
    const bool inside = row < p.rows;
    const i64 packs = inside ? p.packs : 0;
    const Packed* const x = (const Packed*)(p.x + row * p.x_row);
    Packed* const dx = (Packed*)(p.dx + row * p.dx_row);
    const ACC smoothing = (ACC)p.smoothing, even = smoothing / (ACC)p.classes;
    ACC grad = inside ? wide(p.dloss[EACH ? row : 0]) : ACC(0);
    if (MEAN) grad /= p.totals[0];
    const ACC log_sum = inside ? p.log_sum[row] : ACC(0);
#if SOFT
    const Packed* const shares = (const Packed*)(p.shares + row * p.shares_row);
    ACC all = 0;
    EACH_PACK {
        const Packed s = shares[at];
        EACH_ELEMENT all += (wide(s.at[j]) * (ACC(1) - smoothing) + even) * weight_of(p, at * VEC + j);
    }
    all = sum_of<LANES>(all);
    const bool counts = true;
#else
    const i64 found = inside ? class_of(p, row, false) : -1;
    const ACC own = found < 0 ? ACC(0) : weight_of(p, found) * (ACC(1) - smoothing);
    const ACC all = own + even * p.totals[1];
    const bool counts = found >= 0;
#endif
    EACH_PACK {
        const Packed v = x[at];
        Packed out;
#if SOFT
        const Packed s = shares[at];
#endif
        EACH_ELEMENT {
            const i64 c = at * VEC + j;
#if SOFT
            const ACC share = (wide(s.at[j]) * (ACC(1) - smoothing) + even) * weight_of(p, c);
#else
            const ACC share = even * weight_of(p, c) + (c == found ? own : ACC(0));
#endif
            const ACC g = grad * (e_to(wide(v.at[j]) - log_sum) * all - share);
            out.at[j] = stored(counts ? g : ACC(0));
        }
        dx[at] = out;
    }
}
