// Scans of rows that are many or short, a block for each. T, A and join(A, A) stand before this text.

const int THREADS = 256, EACH = 4;

extern "C" __global__ void scan_rows(const __grid_constant__ CubArgs p) {
    __shared__ A totals[THREADS];
    const int t = threadIdx.x;
    A start;
    memcpy(&start, &p.start, sizeof(A));
    for (i64 row = blockIdx.x; row < p.m; row += gridDim.x) {
        const T* x = (const T*)p.a + row * p.n;
        R* out = (R*)p.out + row * p.n;
        A carry = start;
        for (i64 tile = 0; tile < p.n; tile += THREADS * EACH) {
            const i64 first = tile + t * EACH;
            const i64 left = p.n - first;
            const int own = left < 0 ? 0 : left < EACH ? (int)left : EACH;
            A values[EACH];
#pragma unroll
            for (int j = 0; j < EACH; j++) {
                if (j < own) {
                    const A value = widen<A, T>(x[first + j]);
                    values[j] = j ? join(values[j - 1], value) : value;
                    totals[t] = values[j];
                }
            }
            __syncthreads();
            for (int step = 1; step < THREADS; step <<= 1) {
                A sum;
                const bool joins = own && t >= step;
                if (joins) sum = join(totals[t - step], totals[t]);
                __syncthreads();
                if (joins) totals[t] = sum;
                __syncthreads();
            }
            const A ahead = t ? join(carry, totals[t - 1]) : carry;
#pragma unroll
            for (int j = 0; j < EACH; j++) {
                if (j < own) {
                    const A value = p.exclusive ? (j ? join(ahead, values[j - 1]) : ahead) : join(ahead, values[j]);
                    out[first + j] = narrow<R, A>(value);
                }
            }
            if (tile + THREADS * EACH < p.n) carry = join(carry, totals[THREADS - 1]);
            __syncthreads();
        }
    }
}
