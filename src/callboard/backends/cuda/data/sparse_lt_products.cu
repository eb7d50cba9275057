// What is done to a structured product that cuSPARSELt has stored, where it has no epilogue for it: factors that lie on
// the device, and GELU of most dtypes.

#include "numbers.cuh"

typedef signed char i8;

// As cuSPARSELt stores a result of that type.
template <typename T>
__device__ T result(float x) {
    return narrow<T>(x);
}
template <>
__device__ int result<int>(float x) {
    return saturated<int>(x);
}
template <>
__device__ i8 result<i8>(float x) {
    return saturated<i8>(x);
}
template <>
__device__ Brain result<Brain>(float x) {
    return narrow_by_instruction(x);
}
#if __CUDA_ARCH__ >= 890
template <>
__device__ F8e4m3 result<F8e4m3>(float x) {
    return saturated<F8e4m3>(x);
}
template <>
__device__ F8e5m2 result<F8e5m2>(float x) {
    return saturated<F8e5m2>(x);
}
#endif

enum Activation { NONE, RELU, GELU };

struct FinishArgs {
    const void *product, *c, *bias;  // the product may be where the result is to be
    void* out;
    const float *alpha, *beta;  // on the device; null: the number of the call
    float by_alpha, by_beta;
    i64 matrices, rows, cols;  // as they lie: columns are adjacent, and a multiple of 4
    i64 product_matrix, product_row, out_matrix, out_row;  // c lies as the result
    int bias_of_rows;  // one for each row, not for each column
    int activation;
};

// GELU in the tanh form: Hendrycks and Gimpel, arXiv:1606.08415.
__device__ float activated(float x, int activation) {
    if (activation == RELU) return x < 0 ? 0 : x;  // NaN stays
    if (activation == NONE) return x;
    const float weight = 1 + tanhf(0.7978845608f * (x + 0.044715f * x * x * x));
    return weight == 0 ? 0 : 0.5f * x * weight;  // x may be what became infinite when it was stored
}

template <typename T>
struct alignas(4 * sizeof(T)) Four {
    T at[4];
};

// Block (32, 8): a warp has 1024 adjacent elements of a row.
template <typename T, typename R, typename C, typename B>
__device__ void finish(const FinishArgs& p) {
    const float alpha = p.alpha ? *p.alpha : p.by_alpha, beta = p.beta ? *p.beta : p.by_beta;
    const bool adds = p.c && beta != 0;
    const i64 across = (p.cols + 1023) / 1024, lines = p.matrices * p.rows;
    for (i64 work = blockIdx.x * 8ll + threadIdx.y; work < lines * across; work += gridDim.x * 8ll) {
        const i64 line = work / across, matrix = line / p.rows, row = line - matrix * p.rows;
        const i64 first = (work - line * across) * 1024, end = min(first + 1024, p.cols);
        const T* const product = (const T*)p.product + matrix * p.product_matrix + row * p.product_row;
        const i64 at = matrix * p.out_matrix + row * p.out_row;
        for (i64 column = first + threadIdx.x * 4; column < end; column += 128) {
            const Four<T> sums = *(const Four<T>*)(product + column);
            Four<C> c;
            Four<R> out;
            if (adds) c = *(const Four<C>*)((const C*)p.c + at + column);
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                float x = alpha * widen<float>(sums.at[i]);
                if (adds) x += beta * widen<float>(c.at[i]);
                if (p.bias) x += widen<float>(((const B*)p.bias)[p.bias_of_rows ? row : column + i]);
                out.at[i] = result<R>(activated(x, p.activation));
            }
            *(Four<R>*)((R*)p.out + at + column) = out;
        }
    }
}

#define FINISH(name, T, R, C, B) \
    extern "C" __global__ void finish_##name(const __grid_constant__ FinishArgs p) { finish<T, R, C, B>(p); }

FINISH(f16_f16, Half, Half, Half, Half)
FINISH(bf16_bf16, Brain, Brain, Brain, Brain)
FINISH(f32_f32, float, float, float, float)
FINISH(f32_f16, float, Half, Half, Half)
FINISH(f32_bf16, float, Brain, Brain, Brain)
FINISH(i32_i32, int, int, int, float)
FINISH(i32_i8, int, i8, i8, float)
FINISH(i32_f16, int, Half, Half, Half)
FINISH(i32_bf16, int, Brain, Brain, Brain)
#if __CUDA_ARCH__ >= 890
FINISH(f32_f8_e4m3, float, F8e4m3, Brain, Brain)
FINISH(f32_f8_e5m2, float, F8e5m2, Brain, Brain)
#endif
