// Epilogues of a product that cuBLASLt has no fused kernel for. The product lies in scratch, in the precision that sums
// are kept in (float; double beside double).

#include "numbers.cuh"

struct EpilogueArgs {  // steps in elements; the columns of everything are adjacent
    void* sum;  // [batch, m, n] without gaps
    const void *c, *bias, *aux;
    const void *alpha, *beta;  // on the device
    void *out, *kept;          // kept: the auxiliary array to write
    i64 m, n, batch;
    i64 c_row, c_batch, bias_batch, aux_row, aux_batch, out_row, out_batch;
    int activation;  // 0 none, 1 ReLU, 2 GELU
    int backward;    // multiply by its derivative at aux
    int back;        // also store the result where the product lay, for its sums
    int empty;       // the inner extent is 0: all sums are 0
};

template <typename A>
__device__ A inner(A x) {
    return A(0.7978845608028654) * (x + A(0.044715) * x * x * x);
}
template <typename A>
__device__ A gelu(A x) {
    return A(0.5) * x * (A(1) + tanh(inner(x)));
}
template <typename A>
__device__ A gelu_slope(A x) {
    const A t = tanh(inner(x));
    return A(0.5) * (A(1) + t) + A(0.5) * x * (A(1) - t * t) * A(0.7978845608028654) * (A(1) + A(3 * 0.044715) * x * x);
}

// Block (32, 8): a warp has 32 adjacent columns of one row, hence 4 bytes of a mask.
template <typename T, typename A>
__device__ void epilogue(const EpilogueArgs& p) {
    const A alpha = *(const A*)p.alpha, beta = *(const A*)p.beta;
    const i64 across = (p.n + 31) / 32, rows = p.m * p.batch;
    for (i64 work = blockIdx.x * 8ll + threadIdx.y; work < rows * across; work += gridDim.x * 8ll) {
        const i64 row = work / across, j = work % across * 32 + threadIdx.x, which = row / p.m, i = row % p.m;
        const bool inside = j < p.n;
        A x = A(0);
        if (inside) {
            A* sum = (A*)p.sum + row * p.n + j;
            if (!p.empty) {
                x = alpha * *sum;
            }
            if (p.c != nullptr && beta != A(0)) {
                x += beta * widen<A>(((const T*)p.c)[which * p.c_batch + i * p.c_row + j]);
            }
            if (p.bias != nullptr) {
                x += widen<A>(((const T*)p.bias)[which * p.bias_batch + j]);
            }
        }
        const A pre = x;
        if (p.backward) {
            if (inside && p.activation == 1) {
                const u8 bits = ((const u8*)p.aux)[which * p.aux_batch + i * p.aux_row + j / 8];
                x = bits >> (j % 8) & 1 ? x : A(0);
            } else if (inside) {
                x *= gelu_slope(widen<A>(((const T*)p.aux)[which * p.aux_batch + i * p.aux_row + j]));
            }
        } else if (p.activation == 1) {
            x = x < A(0) ? A(0) : x;  // NaN stays
        } else if (p.activation == 2) {
            x = gelu(x);
        }
        if (p.kept != nullptr && p.activation == 1) {
            const u32 passed = __ballot_sync(0xffffffff, inside && pre >= A(0));
            if (threadIdx.x % 8 == 0) {  // rows of a mask are padded, so that these bytes are its own
                ((u8*)p.kept)[which * p.aux_batch + i * p.aux_row + j / 8] = (u8)(passed >> threadIdx.x);
            }
        } else if (p.kept != nullptr && inside) {
            ((T*)p.kept)[which * p.aux_batch + i * p.aux_row + j] = narrow<T>(pre);
        }
        if (inside) {
            ((T*)p.out)[which * p.out_batch + i * p.out_row + j] = narrow<T>(x);
            if (p.back) {
                ((A*)p.sum)[row * p.n + j] = x;
            }
        }
    }
}

struct SumArgs {
    const void* x;
    void* out;
    i64 count, terms, batch;
    i64 x_item, x_term, x_batch, out_batch;
};

// out[which, j] = sum of x[which * x_batch + i * x_term + j * x_item] over i, in one order. Block (32, 8).
template <typename T, typename R, typename A>
__device__ void sums(const SumArgs& p) {
    __shared__ A partial[8][32];
    const i64 across = (p.count + 31) / 32;
    for (i64 work = blockIdx.x; work < across * p.batch; work += gridDim.x) {
        const i64 which = work / across, j = work % across * 32 + threadIdx.x;
        A sum = A(0);
        if (j < p.count) {
            const T* x = (const T*)p.x + which * p.x_batch + j * p.x_item;
            for (i64 i = threadIdx.y; i < p.terms; i += 8) {
                sum += widen<A>(x[i * p.x_term]);
            }
        }
        partial[threadIdx.y][threadIdx.x] = sum;
        __syncthreads();
        if (threadIdx.y == 0 && j < p.count) {
            for (int k = 1; k < 8; ++k) {
                sum += partial[k][threadIdx.x];
            }
            ((R*)p.out)[which * p.out_batch + j] = narrow<R>(sum);
        }
        __syncthreads();
    }
}

#define EPILOGUE(name, T, A)                                                                 \
    extern "C" __global__ void epilogue_##name(const __grid_constant__ EpilogueArgs p) {     \
        epilogue<T, A>(p);                                                                   \
    }
EPILOGUE(f16, Half, float)
EPILOGUE(bf16, Brain, float)
EPILOGUE(f32, float, float)
EPILOGUE(f64, double, double)

#define SUMS(name, T, R, A)                                                         \
    extern "C" __global__ void sums_##name(const __grid_constant__ SumArgs p) {     \
        sums<T, R, A>(p);                                                           \
    }
SUMS(f16_f16, Half, Half, float)
SUMS(f16_f32, Half, float, float)
SUMS(bf16_bf16, Brain, Brain, float)
SUMS(bf16_f32, Brain, float, float)
SUMS(f32_f16, float, Half, float)
SUMS(f32_bf16, float, Brain, float)
SUMS(f32_f32, float, float, float)
SUMS(f8_e4m3_f16, F8e4m3, Half, float)
SUMS(f8_e4m3_bf16, F8e4m3, Brain, float)
SUMS(f8_e5m2_f16, F8e5m2, Half, float)
SUMS(f8_e5m2_bf16, F8e5m2, Brain, float)
SUMS(f64_f64, double, double, double)
