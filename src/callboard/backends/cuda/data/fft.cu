// What cuFFT leaves to others: norms, and the data of functions that it calls.

#include "numbers.cuh"

const int AXES = 32;

struct ScaleArgs {  // steps in real numbers: a complex number is two
    void* out;
    i64 count;
    double factor;
    i64 extent[AXES], step[AXES];
    int axes;
};

__device__ Half scaled(Half x, double factor) {
    return narrow<Half>(widen<float>(x) * (float)factor);
}
__device__ float scaled(float x, double factor) {
    return x * (float)factor;
}
__device__ double scaled(double x, double factor) {
    return x * factor;
}

template <typename T>
__device__ void flat(const ScaleArgs& a) {
    T* out = (T*)a.out;
    const i64 threads = (i64)gridDim.x * blockDim.x;
#pragma unroll 4
    for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < a.count; i += threads) {
        out[i] = scaled(out[i], a.factor);
    }
}

template <typename T>
__device__ void strided(const ScaleArgs& a) {
    const i64 threads = (i64)gridDim.x * blockDim.x;
#pragma unroll 1
    for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < a.count; i += threads) {
        i64 rest = i, to = 0;
#pragma unroll 1
        for (int k = a.axes - 1; k > 0; k--) {
            const i64 next = rest / a.extent[k];
            to += (rest - next * a.extent[k]) * a.step[k];
            rest = next;
        }
        T& out = ((T*)a.out)[to + rest * a.step[0]];
        out = scaled(out, a.factor);
    }
}

#define SCALE(NAME, T)                                                                     \
    extern "C" __global__ void scale_flat_##NAME(const __grid_constant__ ScaleArgs a) {    \
        flat<T>(a);                                                                        \
    }                                                                                      \
    extern "C" __global__ void scale_strided_##NAME(const __grid_constant__ ScaleArgs a) { \
        strided<T>(a);                                                                     \
    }

SCALE(f16, Half)
SCALE(f32, float)
SCALE(f64, double)

struct PointArgs {
    const void** cell;
    const void *load, *store;
};

extern "C" __global__ void point(const __grid_constant__ PointArgs a) {
    a.cell[0] = a.load;
    a.cell[1] = a.store;
}
