// Local response normalisation of [outer, channels, inner], both ways. What dnn.cuh wants is defined.

#include "numbers.cuh"
#include "dnn.cuh"

struct Args {
    const TYPE *x, *dy;
    TYPE* out;
    ACC* kept;  // dy * x / divisor ** (beta + 1)
    i64 count, channels, inner, before, behind;
    double alpha, beta, k;  // alpha: by the size of a window
};

__device__ __forceinline__ float power(float x, float y) { return powf(x, y); }
__device__ __forceinline__ double power(double x, double y) { return pow(x, y); }

#define EACH for (i64 i = (i64)blockIdx.x * 256 + threadIdx.x; i < p.count; i += (i64)gridDim.x * 256)

// The channels around that of element i which there are: from -low to high.
#define WINDOW(BEFORE, BEHIND)                                                    \
    const i64 channel = i / p.inner % p.channels;                                 \
    const i64 low = channel < BEFORE ? channel : BEFORE;                          \
    const i64 high = p.channels - 1 - channel < BEHIND ? p.channels - 1 - channel : BEHIND;

__device__ __forceinline__ ACC divisor(const Args& p, i64 i) {
    WINDOW(p.before, p.behind)
    ACC sum = 0;
    for (i64 c = -low; c <= high; c++) {
        const ACC v = wide(p.x[i + c * p.inner]);
        sum += v * v;
    }
    return (ACC)p.k + (ACC)p.alpha * sum;
}

extern "C" __global__ void __launch_bounds__(256) forward(const Args p) {
    EACH p.out[i] = stored(wide(p.x[i]) * power(divisor(p, i), (ACC)-p.beta));
}

extern "C" __global__ void __launch_bounds__(256) prepare(const Args p) {
    EACH {
        const ACC d = divisor(p, i);
        p.kept[i] = wide(p.dy[i]) * wide(p.x[i]) * power(d, (ACC)-p.beta) / d;
    }
}

extern "C" __global__ void __launch_bounds__(256) backward(const Args p) {
    EACH {
        WINDOW(p.behind, p.before)  // channels whose windows hold this one
        ACC sum = 0;
        for (i64 c = -low; c <= high; c++) sum += p.kept[i + c * p.inner];
        const ACC own = wide(p.dy[i]) * power(divisor(p, i), (ACC)-p.beta);
        p.out[i] = stored(own - (ACC)(2 * p.alpha * p.beta) * wide(p.x[i]) * sum);
    }
}
