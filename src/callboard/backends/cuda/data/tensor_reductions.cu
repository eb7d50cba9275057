// Reductions of one tensor of any strides, and sums of products of two, with operators.
// None of CUDA's headers: NVRTC finds them only where a toolkit is installed.

#include "tensor_packs.cuh"

const int WARP = 32;

struct ReduceArgs {
    const void *a, *b, *c;
    void *out, *parts;  // parts[part][output]: what each part of the terms came to
    Factor alpha, beta;
    i64 outputs, terms, splits;
    i64 packs, row;      // packs of neighbours in all, and in one row: of terms (along) or of results (across)
    i64 share, blocks;   // of packs (along) or terms (across) in one part; blocks for all results, once
    i64 extent[AXES], a_step[AXES], b_step[AXES], c_step[AXES], out_step[AXES];  // axes of the result
    i64 inner[AXES], a_inner[AXES], b_inner[AXES];                               // axes that are reduced
    int axes, inner_axes, wide, has_b, has_c;
    int op_a, op_b, op_c, op_reduce;
    int lanes, end_lanes;  // threads that share the terms of one result, and its parts
    int regular;           // every pack is whole, and aligned where the operand is
};

// factor * operator(x); 0, whatever x is, where the factor is 0.
template <typename T, typename A>
__device__ A term(T x, A factor, int op) {
    if (Number<A>::is_zero(factor)) {
        return A{};
    }
    return Number<A>::mul(factor, Number<A>::unary(widen<A, T>(x), op));
}

struct Place {  // offsets of one element of the result, and of the first of its terms
    i64 a, b, c, out;
};

template <typename I>
__device__ Place place_of(const ReduceArgs& p, i64 output) {
    I rest = (I)output, a = 0, b = 0, c = 0, out = 0;
#pragma unroll 1
    for (int k = p.axes - 1; k >= 0; k--) {
        const I i = k ? next_index(rest, p.extent[k]) : rest;
        a += i * (I)p.a_step[k];
        b += i * (I)p.b_step[k];
        c += i * (I)p.c_step[k];
        out += i * (I)p.out_step[k];
    }
    return {a, b, c, out};
}

template <typename T, typename A>
__device__ void finish(const ReduceArgs& p, const Place& at, A sum) {
    const A alpha = value_of<A>(p.alpha);
    A value = Number<A>::is_zero(alpha) ? A{} : Number<A>::mul(alpha, sum);
    if (p.has_c) {
        const A beta = value_of<A>(p.beta);
        if (!Number<A>::is_zero(beta)) {
            value = Number<A>::add(value, term<T, A>(((const T*)p.c)[at.c], beta, p.op_c));
        }
    }
    ((T*)p.out)[at.out] = narrow<T, A>(value);
}

// The result, or what one part of its terms came to.
template <typename T, typename A, typename I>
__device__ void put(const ReduceArgs& p, i64 output, i64 part, A sum) {
    if (p.splits == 1) {
        finish<T, A>(p, place_of<I>(p, output), sum);
    } else {
        ((A*)p.parts)[part * p.outputs + output] = sum;
    }
}

template <typename A>
__device__ A further(A x, int by) {
    return __shfl_down_sync(~0u, x, by);
}
template <typename R>
__device__ Complex<R> further(Complex<R> x, int by) {
    return {further(x.re, by), further(x.im, by)};
}

// What the lanes of each result hold, combined in a fixed order; lane 0 is told. All threads of the block are here.
template <typename A>
__device__ A total(A mine, int lane, int lanes, int apart, int op) {
    __shared__ A held[THREADS];
    if (lanes == 1) {
        return mine;
    }
    if (apart == 1 && lanes <= WARP) {
        for (int half = lanes / 2; half > 0; half /= 2) {
            mine = binary(mine, further(mine, half), op);
        }
        return mine;
    }
    const int t = threadIdx.x;
    __syncthreads();  // the last round's have been read
    held[t] = mine;
    __syncthreads();
    for (int half = lanes / 2; half > 0; half /= 2) {
        if (lane < half) {
            held[t] = binary(held[t], held[t + half * apart], op);
        }
        __syncthreads();
    }
    return held[t];
}

// sums[j] = sums[j] op unary(x[j]), for the first n.
template <typename T, typename A>
__device__ void add(const ReduceArgs& p, A* sums, const Pack<T>& x, int n) {
    const int size = Pack<T>::SIZE;
    A values[size];
#pragma unroll
    for (int j = 0; j < size; j++) {
        values[j] = widen<A, T>(x.at[j]);
    }
    apply<A, size>(values, p.op_a);
#pragma unroll
    for (int j = 0; j < size; j++) {
        values[j] = j < n ? values[j] : neutral<A>(p.op_reduce);
    }
    join<A, size>(sums, values, p.op_reduce);
}

// The same of products.
template <typename T, typename A>
__device__ void add(const ReduceArgs& p, A* sums, const Pack<T>& x, const Pack<T>& y, int n) {
    const int size = Pack<T>::SIZE;
    A values[size], others[size];
#pragma unroll
    for (int j = 0; j < size; j++) {
        values[j] = widen<A, T>(x.at[j]);
        others[j] = widen<A, T>(y.at[j]);
    }
    apply<A, size>(values, p.op_a);
    apply<A, size>(others, p.op_b);
#pragma unroll
    for (int j = 0; j < size; j++) {
        sums[j] = j < n ? Number<A>::add(sums[j], Number<A>::mul(values[j], others[j])) : sums[j];
    }
}

template <typename I>
struct Inner {  // offsets of a pack of terms; and along, how far it is in its row
    I a, b, col;
};

template <typename I, bool ALONG>
__device__ Inner<I> inner_at(const ReduceArgs& p, i64 t, int size) {
    I rest = (I)t, a = 0, b = 0, col = 0;
    int k = p.inner_axes - 1;
    if (!k) {
        col = rest * (ALONG ? size : 1);
        return {col * (I)p.a_inner[0], col * (I)p.b_inner[0], col};
    }
    if (ALONG) {
        col = next_index(rest, p.row) * size;
        a = col * (I)p.a_inner[k];
        b = col * (I)p.b_inner[k];
        k--;
    }
#pragma unroll 1
    for (; k >= 0; k--) {
        const I i = k ? next_index(rest, p.inner[k]) : rest;
        a += i * (I)p.a_inner[k];
        b += i * (I)p.b_inner[k];
    }
    return {a, b, col};
}

const int AT_ONCE = 4;  // packs whose loads are under way together

// Add up a lane's terms of the results at x (and y): every lanes-th from t on. Along, a pack has terms of one result;
// across, it has one term of each of n results.
template <typename T, typename A, typename I, bool ALONG>
__device__ void add_terms(const ReduceArgs& p, A* sums, const T* x, const T* y, i64 t, i64 stop, int n) {
    const int size = Pack<T>::SIZE;
    const int last = (ALONG ? p.inner_axes : p.axes) - 1;
    const i64 by_a = ALONG ? p.a_inner[last] : p.a_step[last], by_b = ALONG ? p.b_inner[last] : p.b_step[last];
    const bool regular = p.regular && aligned((const T*)p.a);
    if (regular) {
#pragma unroll 1
        for (; t + (AT_ONCE - 1) * p.lanes < stop; t += AT_ONCE * p.lanes) {
            I at[AT_ONCE];
            Pack<T> packs[AT_ONCE];
#pragma unroll
            for (int u = 0; u < AT_ONCE; u++) {
                at[u] = inner_at<I, ALONG>(p, t + u * p.lanes, size).a;
            }
#pragma unroll
            for (int u = 0; u < AT_ONCE; u++) {
                packs[u] = whole(x + at[u]);
            }
#pragma unroll
            for (int u = 0; u < AT_ONCE; u++) {
                add<T, A>(p, sums, packs[u], size);
            }
        }
    }
#pragma unroll 1
    for (; t < stop; t += p.lanes) {
        const Inner<I> at = inner_at<I, ALONG>(p, t, size);
        const int there = ALONG ? fewer(p.inner[last] - at.col, size) : n;
        const Pack<T> terms = regular ? whole(x + at.a) : load(x + at.a, by_a, there);
        if (p.has_b) {
            add<T, A>(p, sums, terms, load(y + at.b, by_b, there), there);
        } else {
            add<T, A>(p, sums, terms, there);
        }
    }
}

// The operand's neighbours are terms of one result: `lanes` neighbouring threads share these, by packs.
template <typename T, typename A, typename I>
__device__ void along(const ReduceArgs& p) {
    const int size = Pack<T>::SIZE, op = p.op_reduce;
    const int lane = threadIdx.x % p.lanes, outs = THREADS / p.lanes;
    const i64 share = p.share, work = p.blocks * p.splits;
#pragma unroll 1
    for (i64 w = blockIdx.x; w < work; w += gridDim.x) {
        const i64 part = p.splits == 1 ? 0 : divided(w, p.blocks);
        const i64 output = (w - part * p.blocks) * outs + threadIdx.x / p.lanes;
        A sums[size];
#pragma unroll
        for (int j = 0; j < size; j++) {
            sums[j] = neutral<A>(op);
        }
        if (output < p.outputs) {
            const Place at = place_of<I>(p, output);
            const i64 first = part * share, stop = first + share < p.packs ? first + share : p.packs;
            const T *x = (const T*)p.a + at.a, *y = (const T*)p.b + at.b;
            add_terms<T, A, I, true>(p, sums, x, y, first + lane, stop, size);
        }
#pragma unroll
        for (int j = 1; j < size; j++) {
            sums[0] = binary(sums[0], sums[j], op);
        }
        const A sum = total(sums[0], lane, p.lanes, 1, op);
        if (lane == 0 && output < p.outputs) {
            put<T, A, I>(p, output, part, sum);
        }
    }
}

// The operand's neighbours are terms of different results: each thread has a pack of these, `lanes` share their terms.
template <typename T, typename A, typename I>
__device__ void across(const ReduceArgs& p) {
    const int size = Pack<T>::SIZE, last = p.axes - 1, op = p.op_reduce;
    const int outs = THREADS / p.lanes, lane = threadIdx.x / outs;
    const i64 share = p.share, work = p.blocks * p.splits;
#pragma unroll 1
    for (i64 w = blockIdx.x; w < work; w += gridDim.x) {
        const i64 part = p.splits == 1 ? 0 : divided(w, p.blocks);
        const i64 pack = (w - part * p.blocks) * outs + threadIdx.x % outs;
        A sums[size];
#pragma unroll
        for (int j = 0; j < size; j++) {
            sums[j] = neutral<A>(op);
        }
        I rest = (I)pack;
        const I col = (last ? next_index(rest, p.row) : rest) * size;
        const i64 output = (last ? (i64)rest * p.extent[last] : 0) + col;
        const int n = pack < p.packs ? fewer(p.extent[last] - col, size) : 0;
        if (n) {
            const Place at = place_of<I>(p, output);
            const i64 first = part * share, stop = first + share < p.terms ? first + share : p.terms;
            const T *x = (const T*)p.a + at.a, *y = (const T*)p.b + at.b;
            add_terms<T, A, I, false>(p, sums, x, y, first + lane, stop, n);
        }
#pragma unroll
        for (int j = 0; j < size; j++) {
            const A sum = total(sums[j], lane, p.lanes, outs, op);
            if (lane == 0 && j < n) {
                put<T, A, I>(p, output + j, part, sum);
            }
        }
    }
}

// The parts of each result, combined.
template <typename T, typename A, typename I>
__device__ void parts(const ReduceArgs& p) {
    const int outs = THREADS / p.end_lanes, lane = threadIdx.x / outs;
    const i64 blocks = divided(p.outputs + outs - 1, outs);
#pragma unroll 1
    for (i64 w = blockIdx.x; w < blocks; w += gridDim.x) {
        const i64 output = w * outs + threadIdx.x % outs;
        A sum = neutral<A>(p.op_reduce);
        if (output < p.outputs) {
#pragma unroll 4
            for (i64 part = lane; part < p.splits; part += p.end_lanes) {
                sum = binary(sum, ((const A*)p.parts)[part * p.outputs + output], p.op_reduce);
            }
        }
        sum = total(sum, lane, p.end_lanes, outs, p.op_reduce);
        if (lane == 0 && output < p.outputs) {
            finish<T, A>(p, place_of<I>(p, output), sum);
        }
    }
}

#define KERNELS(NAME, T, A)                  \
    KERNEL(along, NAME, ReduceArgs, T, A)    \
    KERNEL(across, NAME, ReduceArgs, T, A)   \
    KERNEL(parts, NAME, ReduceArgs, T, A)

#include "tensor_dtypes.cuh"
