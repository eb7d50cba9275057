// What cuBLAS has no call for: a product of any strides with a conjugate of either factor, indices counted from 0, and
// norms of halves.

#include "complex.cuh"
#include "numbers.cuh"

extern "C" __global__ void decrement(i64* index) {
    *index -= 1;
}

struct AddressArgs {
    u64* out;
    i64 count;
    u64 values[448];
};

// One block of 448.
extern "C" __global__ void addresses(const __grid_constant__ AddressArgs p) {
    if (threadIdx.x < p.count) {
        p.out[threadIdx.x] = p.values[threadIdx.x];
    }
}

template <typename T>
__device__ T conjugate(T x) {
    return x;
}
template <typename R>
__device__ Complex<R> conjugate(Complex<R> x) {
    return {x.re, -x.im};
}

struct ProductArgs {  // steps in elements, of any sign
    const void *a, *b, *c;
    void* out;
    const void *alpha, *beta;  // on the device
    i64 m, n, k, batch;
    i64 a_row, a_col, a_batch;
    i64 b_row, b_col, b_batch;
    i64 c_row, c_col, c_batch;
    i64 out_row, out_col, out_batch;
    int conj_a, conj_b;
};

// A: type of sums and factors.
// out = alpha * a @ b + beta * c; c is not read while beta is 0. Block (16, 16), tiles of k through shared memory.
template <typename T, typename R, typename A>
__device__ void product(const ProductArgs& p) {
    __shared__ A tile_a[16][17], tile_b[16][17];
    const A alpha = *(const A*)p.alpha, beta = *(const A*)p.beta;
    const i64 across = (p.n + 15) / 16, tiles = (p.m + 15) / 16 * across;
    const int x = threadIdx.x, y = threadIdx.y;
#pragma unroll 1
    for (i64 work = blockIdx.x; work < tiles * p.batch; work += gridDim.x) {
        const i64 which = work / tiles, i = work % tiles / across * 16 + y, j = work % tiles % across * 16 + x;
        const T* a = (const T*)p.a + which * p.a_batch;
        const T* b = (const T*)p.b + which * p.b_batch;
        A sum = A{};
#pragma unroll 1
        for (i64 k0 = 0; k0 < p.k; k0 += 16) {
            A left = A{}, right = A{};
            if (i < p.m && k0 + x < p.k) {
                left = widen<A, T>(a[i * p.a_row + (k0 + x) * p.a_col]);
            }
            if (k0 + y < p.k && j < p.n) {
                right = widen<A, T>(b[(k0 + y) * p.b_row + j * p.b_col]);
            }
            tile_a[y][x] = p.conj_a ? conjugate(left) : left;
            tile_b[y][x] = p.conj_b ? conjugate(right) : right;
            __syncthreads();
            for (int l = 0; l < 16; l++) {
                sum = sum + tile_a[y][l] * tile_b[l][x];
            }
            __syncthreads();
        }
        if (i < p.m && j < p.n) {
            A result = is_zero(alpha) ? A{} : alpha * sum;
            if (!is_zero(beta)) {
                const R* c = (const R*)p.c + which * p.c_batch;
                result = result + beta * widen<A, R>(c[i * p.c_row + j * p.c_col]);
            }
            ((R*)p.out)[which * p.out_batch + i * p.out_row + j * p.out_col] = narrow<R, A>(result);
        }
    }
}

#define PRODUCT(NAME, T, R, A) \
    extern "C" __global__ void product_##NAME(const __grid_constant__ ProductArgs p) { product<T, R, A>(p); }

PRODUCT(f16, Half, Half, float)
PRODUCT(bf16, Brain, Brain, float)
PRODUCT(f32, float, float, float)
PRODUCT(f64, double, double, double)
PRODUCT(c64, Complex<float>, Complex<float>, Complex<float>)
PRODUCT(c128, Complex<double>, Complex<double>, Complex<double>)
PRODUCT(i8, signed char, u32, u32)  // sums wrap around, hence unsigned

struct NormArgs {  // inc in elements, > 0
    const void* x;
    void* out;
    double* sums;  // one per block
    i64 n, inc, blocks;
};

// The sum of one number per thread, in a fixed order. Blocks of 256.
__device__ double block_sum(double mine) {
    __shared__ double sums[256];
    const int t = threadIdx.x;
    sums[t] = mine;
    __syncthreads();
    for (int half = 128; half > 0; half /= 2) {
        if (t < half) {
            sums[t] += sums[t + half];
        }
        __syncthreads();
    }
    return sums[0];
}

template <typename T, bool SQUARES>
__device__ void finish(const NormArgs& p, double sum) {
    if (threadIdx.x == 0) {
        *(T*)p.out = narrow<T, float>((float)(SQUARES ? sqrt(sum) : sum));
    }
}

template <typename T, bool SQUARES>
__device__ void norm(const NormArgs& p) {
    const T* x = (const T*)p.x;
    double sum = 0;
#pragma unroll 4
    for (i64 i = (i64)blockIdx.x * 256 + threadIdx.x; i < p.n; i += p.blocks * 256) {
        const double value = widen<float, T>(x[i * p.inc]);
        sum += SQUARES ? value * value : fabs(value);
    }
    sum = block_sum(sum);
    if (p.blocks == 1) {
        finish<T, SQUARES>(p, sum);
    } else if (threadIdx.x == 0) {
        p.sums[blockIdx.x] = sum;
    }
}

template <typename T, bool SQUARES>
__device__ void norm_end(const NormArgs& p) {
    double sum = 0;
    for (i64 i = threadIdx.x; i < p.blocks; i += 256) {
        sum += p.sums[i];
    }
    finish<T, SQUARES>(p, block_sum(sum));
}

#define NORM(NAME, T, SQUARES)                                                                                \
    extern "C" __global__ void NAME(const __grid_constant__ NormArgs p) { norm<T, SQUARES>(p); }              \
    extern "C" __global__ void NAME##_end(const __grid_constant__ NormArgs p) { norm_end<T, SQUARES>(p); }

NORM(asum_f16, Half, false)
NORM(asum_bf16, Brain, false)
NORM(nrm2_f16, Half, true)
NORM(nrm2_bf16, Brain, true)
