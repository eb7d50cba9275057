// Element-wise work on tensors of any strides: up to three, an operator on each, joined by operators.
// None of CUDA's headers: NVRTC finds them only where a toolkit is installed.

#include "tensor_packs.cuh"

struct ElementArgs {  // steps in elements, of any sign
    const void *a, *b, *c;
    void* out;
    Factor alpha, beta, gamma;
    i64 count;
    i64 packs, row;  // packs of neighbours in all, and in one row of the last axis
    i64 groups;      // of packs that lie one below the other, BELOW or fewer
    i64 extent[AXES], a_step[AXES], b_step[AXES], c_step[AXES], out_step[AXES];
    int axes, wide, has_b, has_c;  // at least one axis; wide: 32 bits do not hold every index and offset
    int op_a, op_b, op_c, op_ab, op_abc;
    int regular;  // one of Regular
};

// a and c alone, without operators, in whole packs, aligned where their arrays are; or, in sums and products, of one of
// them the same element all along a row. The order of callboard.backends.cuda.tensor.arguments.
enum Regular { IRREGULAR, PACKS, SAME_A, SAME_C };

const int BELOW = 4;

template <typename A>
__device__ bool is_one(A x) {
    return Number<A>::is_zero(Number<A>::add(x, Number<A>::of(-1, 0)));
}

template <typename A>
struct Factors {
    A alpha, beta, gamma;
    bool read_a, read_b, read_c;  // an operand whose factor is 0 is not read
    bool scale;                   // one of the factors is not 1

    __device__ Factors(const ElementArgs& p)
        : alpha(value_of<A>(p.alpha)), beta(value_of<A>(p.beta)), gamma(value_of<A>(p.gamma)) {
        read_a = !Number<A>::is_zero(alpha);
        read_b = p.has_b && !Number<A>::is_zero(beta);
        read_c = p.has_c && !Number<A>::is_zero(gamma);
        scale = !is_one(alpha) || (p.has_b && !is_one(beta)) || (p.has_c && !is_one(gamma));
    }
};

// factor * operator(x), of the elements of a pack; 0 where the operand is not read.
template <typename T, typename A>
__device__ void terms(A* values, const Pack<T>& x, A factor, bool read, bool scale, int op) {
#pragma unroll
    for (int j = 0; j < Pack<T>::SIZE; j++) {
        values[j] = read ? widen<A, T>(x.at[j]) : A{};
    }
    if (read) {
        apply<A, Pack<T>::SIZE>(values, op);
    }
    if (read && scale) {
#pragma unroll
        for (int j = 0; j < Pack<T>::SIZE; j++) {
            values[j] = Number<A>::mul(factor, values[j]);
        }
    }
}

template <typename I>
struct Offsets {  // of one pack; col: how far it is in its row, line: its index of the axis before the last
    I a, b, c, out, col, line;
};

// Of a pack; or of the first of each N that lie one below the other.
template <typename I, int N = 1>
__device__ Offsets<I> offsets_of(const ElementArgs& p, i64 pack, int size) {
    const int last = p.axes - 1;
    I rest = (I)pack;
    const I col = (last ? next_index(rest, p.row) : rest) * size;
    I a = col * (I)p.a_step[last], b = col * (I)p.b_step[last], c = col * (I)p.c_step[last];
    I out = col * (I)p.out_step[last], line = 0;
#pragma unroll 1
    for (int k = last - 1; k >= 0; k--) {
        const bool lines = N > 1 && k == last - 1;
        I at = k ? next_index(rest, lines ? (p.extent[k] + N - 1) / N : p.extent[k]) : rest;
        if (lines) {
            line = at *= N;
        }
        a += at * (I)p.a_step[k];
        b += at * (I)p.b_step[k];
        c += at * (I)p.c_step[k];
        out += at * (I)p.out_step[k];
    }
    return {a, b, c, out, col, line};
}

// N packs of two operands, whose loads are under way together.
template <typename T, typename A, typename I, int OP, int N>
__device__ void pairs(const ElementArgs& p, const Factors<A>& f, i64 i, i64 threads) {
    const int size = Pack<T>::SIZE;
    Pack<T> x[N], z[N];
    I to[N];
#pragma unroll
    for (int u = 0; u < N; u++) {
        const Offsets<I> at = offsets_of<I>(p, i + u * threads, size);
        x[u] = whole((const T*)p.a + at.a);
        z[u] = whole((const T*)p.c + at.c);
        to[u] = at.out;
    }
#pragma unroll
    for (int u = 0; u < N; u++) {
        A value[size], other[size];
#pragma unroll
        for (int j = 0; j < size; j++) {
            value[j] = widen<A, T>(x[u].at[j]);
            other[j] = widen<A, T>(z[u].at[j]);
        }
        if (f.scale) {
#pragma unroll
            for (int j = 0; j < size; j++) {
                value[j] = Number<A>::mul(f.alpha, value[j]);
                other[j] = Number<A>::mul(f.gamma, other[j]);
            }
        }
        join<OP, A, size>(value, other);
#pragma unroll
        for (int j = 0; j < size; j++) {
            x[u].at[j] = narrow<T, A>(value[j]);
        }
        whole((T*)p.out + to[u], x[u]);
    }
}

// What is asked for most: two operands without operators, in whole packs of neighbours. Nothing is decided for each.
template <typename T, typename A, typename I, int OP>
__device__ void pairs(const ElementArgs& p, const Factors<A>& f) {
    const i64 threads = (i64)gridDim.x * THREADS;
    i64 i = (i64)blockIdx.x * THREADS + threadIdx.x;
#pragma unroll 1
    for (; i + threads < p.packs; i += 2 * threads) {
        pairs<T, A, I, OP, 2>(p, f, i, threads);
    }
    if (i < p.packs) {
        pairs<T, A, I, OP, 1>(p, f, i, threads);
    }
}

// N packs one below the other, each of one element of the first operand (or, swapped, of the second) and a pack of the
// other.
template <typename T, typename A, typename I, int OP, int N>
__device__ void lines(const T* one, I one_by, const T* other, I other_by, T* out, I by, A one_factor, A factor,
                      bool scale, bool swapped) {
    const int size = Pack<T>::SIZE;
    T x[N];
    Pack<T> z[N];
#pragma unroll
    for (int u = 0; u < N; u++) {
        x[u] = one[u * one_by];
        z[u] = whole(other + u * other_by);
    }
#pragma unroll
    for (int u = 0; u < N; u++) {
        A mine = widen<A, T>(x[u]);
        if (scale) {
            mine = Number<A>::mul(one_factor, mine);
        }
#pragma unroll
        for (int j = 0; j < size; j++) {
            A value = widen<A, T>(z[u].at[j]);
            if (scale) {
                value = Number<A>::mul(factor, value);
            }
            z[u].at[j] = narrow<T, A>(swapped ? binary(value, mine, OP) : binary(mine, value, OP));
        }
        whole(out + u * by, z[u]);
    }
}

// A row of one operand meets an element of the other: products of all pairs, a column added to a matrix. The index is
// divided once for several packs: done for each, that took longer than to store them.
template <typename T, typename A, typename I, int OP>
__device__ void lines(const ElementArgs& p, const Factors<A>& f) {
    const int up = p.axes - 2;
    const bool swapped = p.regular == SAME_C;
    const I a_by = (I)p.a_step[up], c_by = (I)p.c_step[up], by = (I)p.out_step[up];
    const I one_by = swapped ? c_by : a_by, other_by = swapped ? a_by : c_by;
    const A one_factor = swapped ? f.gamma : f.alpha, factor = swapped ? f.alpha : f.gamma;
    const i64 threads = (i64)gridDim.x * THREADS;
#pragma unroll 1
    for (i64 i = (i64)blockIdx.x * THREADS + threadIdx.x; i < p.groups; i += threads) {
        const Offsets<I> at = offsets_of<I, BELOW>(p, i, Pack<T>::SIZE);
        const T *a = (const T*)p.a + at.a, *c = (const T*)p.c + at.c;
        const T *one = swapped ? c : a, *other = swapped ? a : c;
        T* out = (T*)p.out + at.out;
        int left = fewer(p.extent[up] - at.line, BELOW);
        if (left == BELOW) {
            lines<T, A, I, OP, BELOW>(one, one_by, other, other_by, out, by, one_factor, factor, f.scale, swapped);
            continue;
        }
#pragma unroll 1
        for (; left > 0; left--) {
            lines<T, A, I, OP, 1>(one, one_by, other, other_by, out, by, one_factor, factor, f.scale, swapped);
            one += one_by, other += other_by, out += by;
        }
    }
}

template <typename T, typename A, typename I, int OP>
__device__ void regular(const ElementArgs& p, const Factors<A>& f) {
    if (p.regular == PACKS) {
        pairs<T, A, I, OP>(p, f);
    } else {
        lines<T, A, I, OP>(p, f);
    }
}

// Whether an operand that is read by packs lies so, too.
template <typename T>
__device__ bool are_packs(const ElementArgs& p) {
    const bool a = p.regular == SAME_A || aligned((const T*)p.a), c = p.regular == SAME_C || aligned((const T*)p.c);
    return p.regular != IRREGULAR && a && c && aligned((const T*)p.out);
}

// One thread for each pack of neighbours in a row of the result.
template <typename T, typename A, typename I>
__device__ void elementwise(const ElementArgs& p) {
    const int size = Pack<T>::SIZE, last = p.axes - 1;
    const Factors<A> f(p);
    if (are_packs<T>(p) && f.read_a && f.read_c) {
        switch (p.op_abc) {
            case ADD: return regular<T, A, I, ADD>(p, f);
            case MUL: return regular<T, A, I, MUL>(p, f);
            case MAX: return pairs<T, A, I, MAX>(p, f);
            default: return pairs<T, A, I, MIN>(p, f);
        }
    }
    const i64 threads = (i64)gridDim.x * THREADS;
    const i64 by_a = p.a_step[last], by_b = p.b_step[last], by_c = p.c_step[last];
#pragma unroll 1
    for (i64 i = (i64)blockIdx.x * THREADS + threadIdx.x; i < p.packs; i += threads) {
        const Offsets<I> at = offsets_of<I>(p, i, size);
        const int n = fewer(p.extent[last] - at.col, size);
        Pack<T> x{}, y{}, z{}, result;
        if (f.read_a) {
            x = load((const T*)p.a + at.a, by_a, n);
        }
        if (f.read_b) {
            y = load((const T*)p.b + at.b, by_b, n);
        }
        if (f.read_c) {
            z = load((const T*)p.c + at.c, by_c, n);
        }
        A value[size], other[size];
        terms(value, x, f.alpha, f.read_a, f.scale, p.op_a);
        if (p.has_b) {
            terms(other, y, f.beta, f.read_b, f.scale, p.op_b);
            join<A, size>(value, other, p.op_ab);
        }
        if (p.has_c) {
            terms(other, z, f.gamma, f.read_c, f.scale, p.op_c);
            join<A, size>(value, other, p.op_abc);
        }
#pragma unroll
        for (int j = 0; j < size; j++) {
            result.at[j] = narrow<T, A>(value[j]);
        }
        store((T*)p.out + at.out, result, p.out_step[last], n);
    }
}

#define KERNELS(NAME, T, A) KERNEL(elementwise, NAME, ElementArgs, T, A)

#include "tensor_dtypes.cuh"
