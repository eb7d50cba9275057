// Arguments and conventions of the solver's kernels.

#include "complex.cuh"

typedef unsigned long long u64;
typedef long long i64;

struct SolverArgs {
    void *x, *y, *z;
    int* status;
    i64 rows, cols, batch, ld, mode, ldz;
    double low, high;
};

enum {
    INFO, NOT_FINITE, BAD_INDICES, DIAGONAL, ITEM, FAILED, FIRST, FOUND, SPARE,
    STRUCTURE, VALUES, RESIDUAL, ZEROS, HOLLOW, WITHOUT_RESULT
};

const int THREADS = 256;

__device__ float make(float re, float*) { return re; }
__device__ double make(double re, double*) { return re; }
__device__ Complex<float> make(float re, Complex<float>*) { return {re, 0}; }
__device__ Complex<double> make(double re, Complex<double>*) { return {re, 0}; }

__device__ bool is_finite(float v) { return (__float_as_uint(v) & 0x7f800000u) != 0x7f800000u; }
__device__ bool is_finite(double v) {
    return (__double_as_longlong(v) & 0x7ff0000000000000ll) != 0x7ff0000000000000ll;
}

__device__ i64 first_thread() { return (i64)blockIdx.x * blockDim.x + threadIdx.x; }
__device__ i64 all_threads() { return (i64)gridDim.x * blockDim.x; }

#define REAL(name)                                                                                       \
    extern "C" __global__ void name##_f32(const __grid_constant__ SolverArgs p) { name<float>(p); }      \
    extern "C" __global__ void name##_f64(const __grid_constant__ SolverArgs p) { name<double>(p); }
#define ANY(name)                                                                                         \
    REAL(name)                                                                                            \
    extern "C" __global__ void name##_c64(const __grid_constant__ SolverArgs p) { name<Complex<float>>(p); } \
    extern "C" __global__ void name##_c128(const __grid_constant__ SolverArgs p) { name<Complex<double>>(p); }
