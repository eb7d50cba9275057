// Element-wise work on tensors of any strides, with operators, and reductions of one tensor or of a product of two.
// None of CUDA's headers: NVRTC finds them only where a toolkit is installed.

#include "tensor.cuh"

const int AXES = 32;
const int THREADS = 256;

struct Factor {
    const void* at;  // on the device; null: the number
    double re, im;
};

struct ElementArgs {  // steps in elements, of any sign
    const void *a, *b, *c;
    void* out;
    Factor alpha, beta, gamma;
    i64 count;
    i64 extent[AXES], a_step[AXES], b_step[AXES], c_step[AXES], out_step[AXES];
    int axes, wide, has_b, has_c;  // wide: 32 bits do not hold every index and offset
    int op_a, op_b, op_c, op_ab, op_abc;
};

struct ReduceArgs {
    const void *a, *b, *c;
    void *out, *parts;  // parts[part][output]: what each part of the terms came to
    Factor alpha, beta;
    i64 outputs, terms, splits;
    i64 extent[AXES], a_step[AXES], b_step[AXES], c_step[AXES], out_step[AXES];  // axes of the result
    i64 inner[AXES], a_inner[AXES], b_inner[AXES];                               // axes that are reduced
    int axes, inner_axes, wide, has_b, has_c;
    int op_a, op_b, op_c, op_reduce;
};

template <typename A>
__device__ A value_of(const Factor& f) {
    return f.at ? *(const A*)f.at : Number<A>::of(f.re, f.im);
}

// factor * operator(x); 0, whatever x is, where the factor is 0.
template <typename T, typename A>
__device__ A term(T x, A factor, int op) {
    if (Number<A>::is_zero(factor)) {
        return A{};
    }
    return Number<A>::mul(factor, Number<A>::unary(widen<A, T>(x), op));
}

__device__ __noinline__ i64 divided(i64 x, i64 y) {  // long, and seldom needed
    return (i64)((u64)x / (u64)y);
}

// The index of an axis from the rest of a linear index. I: int wherever all indices and offsets fit; divisions of 64
// bits are several times slower.
template <typename I>
__device__ I next_index(I& rest, i64 extent) {
    const I next = sizeof(I) == 4 ? (I)((u32)rest / (u32)extent) : (I)divided(rest, extent);
    const I at = rest - next * (I)extent;
    rest = next;
    return at;
}

// -- element by element ------------------------------------------------------------------------------------------------

const int AT_ONCE = 4;  // elements whose loads are under way together

template <typename A>
struct Factors {
    A alpha, beta, gamma;
    bool read_a, read_b, read_c;  // an operand whose factor is 0 is not read

    __device__ Factors(const ElementArgs& p)
        : alpha(value_of<A>(p.alpha)), beta(value_of<A>(p.beta)), gamma(value_of<A>(p.gamma)) {
        read_a = !Number<A>::is_zero(alpha);
        read_b = p.has_b && !Number<A>::is_zero(beta);
        read_c = p.has_c && !Number<A>::is_zero(gamma);
    }
};

template <typename T, typename A>
__device__ T joined(const ElementArgs& p, const Factors<A>& f, T x, T y, T z) {
    A value = f.read_a ? Number<A>::mul(f.alpha, Number<A>::unary(widen<A, T>(x), p.op_a)) : A{};
    if (p.has_b) {
        const A second = f.read_b ? Number<A>::mul(f.beta, Number<A>::unary(widen<A, T>(y), p.op_b)) : A{};
        value = binary(value, second, p.op_ab);
    }
    if (p.has_c) {
        const A third = f.read_c ? Number<A>::mul(f.gamma, Number<A>::unary(widen<A, T>(z), p.op_c)) : A{};
        value = binary(value, third, p.op_abc);
    }
    return narrow<T, A>(value);
}

// All axes are one: nothing is divided.
template <typename T, typename A>
__device__ void elementwise_flat(const ElementArgs& p) {
    const Factors<A> f(p);
    const i64 threads = (i64)gridDim.x * THREADS;
    i64 i = (i64)blockIdx.x * THREADS + threadIdx.x;
    const T* a = (const T*)p.a + i * p.a_step[0];
    const T* b = (const T*)p.b + i * p.b_step[0];
    const T* c = (const T*)p.c + i * p.c_step[0];
    T* out = (T*)p.out + i * p.out_step[0];
    const i64 by_a = threads * p.a_step[0], by_b = threads * p.b_step[0];
    const i64 by_c = threads * p.c_step[0], by_out = threads * p.out_step[0];
#pragma unroll 1
    for (; i + (AT_ONCE - 1) * threads < p.count; i += AT_ONCE * threads) {
        T x[AT_ONCE], y[AT_ONCE], z[AT_ONCE];
#pragma unroll
        for (int j = 0; j < AT_ONCE; j++) {
            x[j] = y[j] = z[j] = T{};
            if (f.read_a) {
                x[j] = a[j * by_a];
            }
            if (f.read_b) {
                y[j] = b[j * by_b];
            }
            if (f.read_c) {
                z[j] = c[j * by_c];
            }
        }
#pragma unroll
        for (int j = 0; j < AT_ONCE; j++) {
            out[j * by_out] = joined(p, f, x[j], y[j], z[j]);
        }
        a += AT_ONCE * by_a, b += AT_ONCE * by_b, c += AT_ONCE * by_c, out += AT_ONCE * by_out;
    }
#pragma unroll 1
    for (; i < p.count; i += threads) {
        *out = joined(p, f, f.read_a ? *a : T{}, f.read_b ? *b : T{}, f.read_c ? *c : T{});
        a += by_a, b += by_b, c += by_c, out += by_out;
    }
}

template <typename T, typename A, typename I>
__device__ void elementwise_walk(const ElementArgs& p) {
    const Factors<A> f(p);
    const i64 threads = (i64)gridDim.x * THREADS;
#pragma unroll 1
    for (i64 i = (i64)blockIdx.x * THREADS + threadIdx.x; i < p.count; i += threads) {
        I rest = (I)i, a = 0, b = 0, c = 0, out = 0;
#pragma unroll 1
        for (int k = p.axes - 1; k >= 0; k--) {
            const I at = k ? next_index(rest, p.extent[k]) : rest;
            a += at * (I)p.a_step[k];
            b += at * (I)p.b_step[k];
            c += at * (I)p.c_step[k];
            out += at * (I)p.out_step[k];
        }
        const T x = f.read_a ? ((const T*)p.a)[a] : T{};
        const T y = f.read_b ? ((const T*)p.b)[b] : T{};
        ((T*)p.out)[out] = joined(p, f, x, y, f.read_c ? ((const T*)p.c)[c] : T{});
    }
}

template <typename T, typename A>
__device__ void elementwise(const ElementArgs& p) {
    if (p.axes == 1) {
        elementwise_flat<T, A>(p);
    } else if (p.wide) {
        elementwise_walk<T, A, i64>(p);
    } else {
        elementwise_walk<T, A, int>(p);
    }
}

// -- reductions --------------------------------------------------------------------------------------------------------

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

__device__ Place place_of(const ReduceArgs& p, i64 output) {
    return p.wide ? place_of<i64>(p, output) : place_of<int>(p, output);
}

// Terms at one distance in memory.
template <typename T, typename A, int OP>
__device__ A reduce_flat(const T* x, i64 count, i64 by, int unary) {
    A sums[AT_ONCE];
    for (int j = 0; j < AT_ONCE; j++) {
        sums[j] = neutral<A>(OP);
    }
    i64 left = count;
#pragma unroll 2
    for (; left >= AT_ONCE; left -= AT_ONCE) {
        T values[AT_ONCE];
#pragma unroll
        for (int j = 0; j < AT_ONCE; j++) {
            values[j] = x[j * by];
        }
#pragma unroll
        for (int j = 0; j < AT_ONCE; j++) {
            sums[j] = binary(sums[j], Number<A>::unary(widen<A, T>(values[j]), unary), OP);
        }
        x += AT_ONCE * by;
    }
#pragma unroll 1
    for (; left > 0; left--) {
        sums[0] = binary(sums[0], Number<A>::unary(widen<A, T>(*x), unary), OP);
        x += by;
    }
    return binary(binary(sums[0], sums[1], OP), binary(sums[2], sums[3], OP), OP);
}

// Terms that lie anyhow, or products of two.
template <typename T, typename A, typename I>
__device__ A reduce_walk(const ReduceArgs& p, const Place& at, i64 first, i64 stop, int step) {
    A sum = neutral<A>(p.op_reduce);
#pragma unroll 1
    for (i64 t = first; t < stop; t += step) {
        I rest = (I)t, a = 0, b = 0;
#pragma unroll 1
        for (int k = p.inner_axes - 1; k >= 0; k--) {
            const I i = k ? next_index(rest, p.inner[k]) : rest;
            a += i * (I)p.a_inner[k];
            b += i * (I)p.b_inner[k];
        }
        A value = Number<A>::unary(widen<A, T>(((const T*)p.a)[at.a + a]), p.op_a);
        if (p.has_b) {
            value = Number<A>::mul(value, Number<A>::unary(widen<A, T>(((const T*)p.b)[at.b + b]), p.op_b));
        }
        sum = binary(sum, value, p.op_reduce);
    }
    return sum;
}

template <typename T, typename A>
__device__ A reduce_terms(const ReduceArgs& p, const Place& at, i64 first, i64 stop, int step) {
    const int op = p.op_reduce;
    if (p.inner_axes == 1 && !p.has_b && first < stop) {
        const T* x = (const T*)p.a + at.a + first * p.a_inner[0];
        const i64 count = step == 1 ? stop - first : (stop - first + step - 1) / THREADS;  // step is 1 or THREADS
        const i64 by = step * p.a_inner[0];
        switch (op) {
            case ADD: return reduce_flat<T, A, ADD>(x, count, by, p.op_a);
            case MUL: return reduce_flat<T, A, MUL>(x, count, by, p.op_a);
            case MAX: return reduce_flat<T, A, MAX>(x, count, by, p.op_a);
            default: return reduce_flat<T, A, MIN>(x, count, by, p.op_a);
        }
    }
    return p.wide ? reduce_walk<T, A, i64>(p, at, first, stop, step) : reduce_walk<T, A, int>(p, at, first, stop, step);
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

// One thread for each part of each element of the result: neighbours read neighbours where the result's last axis is
// the operand's.
template <typename T, typename A>
__device__ void reduce_threads(const ReduceArgs& p) {
    const i64 work = p.outputs * p.splits, share = divided(p.terms + p.splits - 1, p.splits);
    const i64 threads = (i64)gridDim.x * THREADS;
#pragma unroll 1
    for (i64 i = (i64)blockIdx.x * THREADS + threadIdx.x; i < work; i += threads) {
        const i64 part = p.splits == 1 ? 0 : divided(i, p.outputs), output = i - part * p.outputs;
        const Place at = place_of(p, output);
        const i64 first = part * share, stop = first + share < p.terms ? first + share : p.terms;
        const A sum = reduce_terms<T, A>(p, at, first, stop, 1);
        if (p.splits == 1) {
            finish<T, A>(p, at, sum);
        } else {
            ((A*)p.parts)[i] = sum;
        }
    }
}

// What the threads of a block hold, combined in a fixed order.
template <typename A>
__device__ A block_total(A mine, int op) {
    __shared__ A held[THREADS];
    const int t = threadIdx.x;
    __syncthreads();  // the last round's total has been read
    held[t] = mine;
    __syncthreads();
    for (int half = THREADS / 2; half > 0; half /= 2) {
        if (t < half) {
            held[t] = binary(held[t], held[t + half], op);
        }
        __syncthreads();
    }
    return held[0];
}

// One block for each part of each element of the result: neighbours read neighbours along the reduced axes.
template <typename T, typename A>
__device__ void reduce_blocks(const ReduceArgs& p) {
    const i64 work = p.outputs * p.splits, share = divided(p.terms + p.splits - 1, p.splits);
#pragma unroll 1
    for (i64 i = blockIdx.x; i < work; i += gridDim.x) {
        const i64 part = p.splits == 1 ? 0 : divided(i, p.outputs), output = i - part * p.outputs;
        const Place at = place_of(p, output);
        const i64 first = part * share, stop = first + share < p.terms ? first + share : p.terms;
        const A sum = block_total(reduce_terms<T, A>(p, at, first + threadIdx.x, stop, THREADS), p.op_reduce);
        if (threadIdx.x == 0) {
            if (p.splits == 1) {
                finish<T, A>(p, at, sum);
            } else {
                ((A*)p.parts)[i] = sum;
            }
        }
    }
}

// One block for each element of the result adds up its parts.
template <typename T, typename A>
__device__ void reduce_parts(const ReduceArgs& p) {
#pragma unroll 1
    for (i64 output = blockIdx.x; output < p.outputs; output += gridDim.x) {
        A sum = neutral<A>(p.op_reduce);
        for (i64 part = threadIdx.x; part < p.splits; part += THREADS) {
            sum = binary(sum, ((const A*)p.parts)[part * p.outputs + output], p.op_reduce);
        }
        sum = block_total(sum, p.op_reduce);
        if (threadIdx.x == 0) {
            finish<T, A>(p, place_of(p, output), sum);
        }
    }
}

#define KERNELS(NAME, T, A)                                                                                          \
    extern "C" __global__ void elementwise_##NAME(const __grid_constant__ ElementArgs p) { elementwise<T, A>(p); }    \
    extern "C" __global__ void threads_##NAME(const __grid_constant__ ReduceArgs p) { reduce_threads<T, A>(p); }      \
    extern "C" __global__ void blocks_##NAME(const __grid_constant__ ReduceArgs p) { reduce_blocks<T, A>(p); }        \
    extern "C" __global__ void parts_##NAME(const __grid_constant__ ReduceArgs p) { reduce_parts<T, A>(p); }

// One dtype at a time: all would take ten seconds to compile.
#ifdef FOR_f16
KERNELS(f16, Half, float)
#endif
#ifdef FOR_bf16
KERNELS(bf16, Brain, float)
#endif
#ifdef FOR_f32
KERNELS(f32, float, float)
#endif
#ifdef FOR_f64
KERNELS(f64, double, double)
#endif
#ifdef FOR_c64
KERNELS(c64, Complex<float>, Complex<float>)
#endif
#ifdef FOR_c128
KERNELS(c128, Complex<double>, Complex<double>)
#endif
#ifdef FOR_i32
KERNELS(i32, int, int)
#endif
#ifdef FOR_i64
KERNELS(i64, i64, i64)
#endif
