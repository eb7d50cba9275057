// What is done to a structured product that cuSPARSELt has stored, where it has no epilogue for it: factors that lie on
// the device, and GELU of most dtypes.
// No headers: NVRTC finds CUDA's only where a toolkit is installed.

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef long long i64;
typedef signed char i8;

struct Half { u16 bits; };
struct Brain { u16 bits; };
struct E4m3 { u8 bits; };
struct E5m2 { u8 bits; };

__device__ float widen(float x) { return x; }
__device__ float widen(int x) { return (float)x; }
__device__ float widen(i8 x) { return x; }
__device__ float widen(Brain x) { return __uint_as_float((u32)x.bits << 16); }
__device__ float widen(Half x) {
    float wide;
    asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(x.bits));
    return wide;
}

__device__ void narrow(float x, float& out) { out = x; }
__device__ void narrow(float x, int& out) { out = __float2int_rn(x); }
__device__ void narrow(float x, i8& out) { out = (i8)__float2int_rn(fminf(fmaxf(x, -128), 127)); }
__device__ void narrow(float x, Half& out) { asm("cvt.rn.f16.f32 %0, %1;" : "=h"(out.bits) : "f"(x)); }
__device__ void narrow(float x, Brain& out) { asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(out.bits) : "f"(x)); }
#if __CUDA_ARCH__ >= 890
__device__ void narrow(float x, E4m3& out) {
    u16 pair;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.f), "f"(x));
    out.bits = (u8)pair;
}
__device__ void narrow(float x, E5m2& out) {
    u16 pair;
    asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.f), "f"(x));
    out.bits = (u8)pair;
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
                float x = alpha * widen(sums.at[i]);
                if (adds) x += beta * widen(c.at[i]);
                if (p.bias) x += widen(((const B*)p.bias)[p.bias_of_rows ? row : column + i]);
                narrow(activated(x, p.activation), out.at[i]);
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
FINISH(f32_f8_e4m3, float, E4m3, Brain, Brain)
FINISH(f32_f8_e5m2, float, E5m2, Brain, Brain)
#endif
