// Matrices with elements at the ends of their range, scaled by powers of two: vendors' routines multiply by reciprocals of
// pivots, which are infinite for denormal ones. Matrices of ordinary numbers are read once and left as they are.
//
// y: integers, ld for each item of a batch. [0]: the exponent of the item's scale, 0 if it is not scaled. Behind it are
// those of mode right-hand sides, of cols columns and, at the end, of rows rows. Before they are exponents of scales they
// are those of the largest elements, plus BIAS; 0 where all elements are 0.

#include "solver.cuh"

const int BIAS = 4096, TILE = 32;

// Exponents of sizes with which a reciprocal and a few products stay in the range; and how far rows may lie apart.
template <typename R> struct Limits;
template <> struct Limits<float> { static const int LOW = -102, HIGH = 105, APART = 51; };
template <> struct Limits<double> { static const int LOW = -969, HIGH = 972, APART = 485; };
template <typename T> struct RealOf { typedef T Type; };
template <typename R> struct RealOf<Complex<R>> { typedef R Type; };

__device__ int top_of(float v) { return v == 0 || !is_finite(v) ? 0 : ilogbf(v) + 1 + BIAS; }
__device__ int top_of(double v) { return v == 0 || !is_finite(v) ? 0 : ilogb(v) + 1 + BIAS; }
template <typename R>
__device__ int top_of(Complex<R> v) { return max(top_of(v.re), top_of(v.im)); }

__device__ float shifted(float v, int e) { return ldexpf(v, e); }
__device__ double shifted(double v, int e) { return ldexp(v, e); }
template <typename R>
__device__ Complex<R> shifted(Complex<R> v, int e) { return {shifted(v.re, e), shifted(v.im, e)}; }

__device__ int scale_of(int top) { return top ? BIAS - top : 0; }
template <typename T>
__device__ bool outside(int top) {
    typedef Limits<typename RealOf<T>::Type> Range;
    return top && (top - BIAS < Range::LOW || top - BIAS > Range::HIGH);
}

struct Exponents {
    int *of, *sides, *cols, *rows;
    __device__ Exponents(const SolverArgs& p, i64 item)
        : of((int*)p.y + item * p.ld), sides(of + 1), cols(sides + p.mode), rows(of + p.ld - p.rows) {}
};

// x: batch of rows x cols; y: all 0 before. A block takes tiles of THREADS rows and TILE columns.
template <typename T>
__device__ void extents(const SolverArgs& p) {
    const i64 down = (p.rows + THREADS - 1) / THREADS, tiles = down * ((p.cols + TILE - 1) / TILE);
    for (i64 t = blockIdx.x; t < tiles * p.batch; t += gridDim.x) {
        const i64 item = t / tiles, row = t % tiles % down * THREADS + threadIdx.x, first = t % tiles / down * TILE;
        const T* x = (const T*)p.x + item * p.rows * p.cols;
        const Exponents y(p, item);
        int mine = 0;
        for (i64 col = first; col < first + TILE && col < p.cols; ++col) {
            int top = row < p.rows ? top_of(x[col * p.rows + row]) : 0;
            mine = max(mine, top);
            for (int step = 16; step; step /= 2) top = max(top, __shfl_xor_sync(~0u, top, step));
            if (threadIdx.x % 32 == 0 && top) atomicMax(y.cols + col, top);
        }
        if (mine) atomicMax(y.rows + row, mine);
    }
}

// z: right-hand sides of an item, mode columns of ldz elements, n of which count. Each gets its rows' scales, and one that
// brings its largest element near 1.
template <typename T>
__device__ void scale_sides(const SolverArgs& p, const Exponents& y, i64 item, i64 n, bool by_row) {
    __shared__ int top;
    for (i64 c = 0; c < p.mode; ++c) {
        T* z = (T*)p.z + (item * p.mode + c) * p.ldz;
        __syncthreads();
        if (threadIdx.x == 0) top = 0;
        __syncthreads();
        for (i64 k = threadIdx.x; k < n; k += THREADS)
            if (const int mine = top_of(z[k])) atomicMax(&top, mine + (by_row ? y.rows[k] : 0));
        __syncthreads();
        for (i64 k = threadIdx.x; k < n; k += THREADS)
            z[k] = shifted(z[k], scale_of(top) + (by_row ? y.rows[k] : 0));
        if (threadIdx.x == 0) y.sides[c] = scale_of(top);
    }
}

// x: batch of rows x rows, y as "extents" leaves it, z: right-hand sides or none. A block for each item. Rows and columns
// of an item are brought near 1 if some are outside of the limits; first those that lie further apart.
template <typename T>
__device__ void equilibrate(const SolverArgs& p) {
    const i64 n = p.rows, size = n * n;
    const Exponents y(p, blockIdx.x);
    T* x = (T*)p.x + blockIdx.x * size;
    __shared__ int most[2], least[2], odd;  // of rows, of columns
    if (threadIdx.x == 0) most[0] = most[1] = odd = 0, least[0] = least[1] = 2 * BIAS;
    __syncthreads();
    for (i64 k = threadIdx.x; k < n; k += THREADS) {
        const int tops[2] = {y.rows[k], y.cols[k]};
        for (int i = 0; i < 2; ++i) {
            if (!tops[i]) continue;
            atomicMax(most + i, tops[i]);
            atomicMin(least + i, tops[i]);
            if (outside<T>(tops[i])) atomicMax(&odd, 1);
        }
    }
    __syncthreads();
    if (!odd && most[0] - least[0] <= Limits<typename RealOf<T>::Type>::APART) return;
    const bool by_row = most[0] - least[0] >= most[1] - least[1];
    int *const first = by_row ? y.rows : y.cols, *const second = by_row ? y.cols : y.rows;
    for (i64 k = threadIdx.x; k < n; k += THREADS) {
        first[k] = scale_of(first[k]);
        second[k] = 0;
    }
    __syncthreads();
    for (i64 k = threadIdx.x; k < size; k += THREADS) {
        x[k] = shifted(x[k], first[by_row ? k % n : k / n]);
        if (const int top = top_of(x[k])) atomicMax(second + (by_row ? k / n : k % n), top);
    }
    __syncthreads();
    for (i64 k = threadIdx.x; k < n; k += THREADS) second[k] = scale_of(second[k]);
    __syncthreads();
    for (i64 k = threadIdx.x; k < size; k += THREADS) x[k] = shifted(x[k], second[by_row ? k / n : k % n]);
    if (threadIdx.x == 0) y.of[0] = 1;
    scale_sides<T>(p, y, blockIdx.x, n, true);
}

// The same for matrices of rows x cols as wholes, of which the largest element is outside of the limits.
template <typename T>
__device__ void centre(const SolverArgs& p) {
    const Exponents y(p, blockIdx.x);
    const i64 size = p.rows * p.cols;
    T* x = (T*)p.x + blockIdx.x * size;
    __shared__ int most;
    if (threadIdx.x == 0) most = 0;
    __syncthreads();
    for (i64 k = threadIdx.x; k < p.rows; k += THREADS) atomicMax(&most, y.rows[k]);
    __syncthreads();
    if (!outside<T>(most)) return;
    for (i64 k = threadIdx.x; k < size; k += THREADS) x[k] = shifted(x[k], scale_of(most));
    if (threadIdx.x == 0) y.of[0] = scale_of(most);
    scale_sides<T>(p, y, blockIdx.x, p.ldz, false);
}

// The same for factors L and U of rows x rows, of which elements of the diagonal of U are outside: U is scaled.
template <typename T>
__device__ void centre_factors(const SolverArgs& p) {
    const Exponents y(p, blockIdx.x);
    const i64 n = p.rows, size = n * n;
    T* x = (T*)p.x + blockIdx.x * size;
    __shared__ int most, odd;
    if (threadIdx.x == 0) most = 0, odd = 0;
    __syncthreads();
    for (i64 k = threadIdx.x; k < n; k += THREADS) {
        const int top = top_of(x[k * n + k]);
        atomicMax(&most, top);
        if (outside<T>(top)) atomicMax(&odd, 1);
    }
    __syncthreads();
    if (!odd) return;
    for (i64 k = threadIdx.x; k < size; k += THREADS)
        if (k % n <= k / n) x[k] = shifted(x[k], scale_of(most));
    if (threadIdx.x == 0) y.of[0] = scale_of(most);
    scale_sides<T>(p, y, blockIdx.x, n, false);
}

// x: batch of rows x cols, whose upper triangles are those of matrices that "centre" has scaled.
template <typename T>
__device__ void uncentre(const SolverArgs& p) {
    const i64 size = p.rows * p.cols;
    T* x = (T*)p.x;
    for (i64 k = first_thread(); k < size * p.batch; k += all_threads()) {
        const int scale = ((const int*)p.y)[k / size * p.ld];
        if (scale && k % size % p.rows <= k % size / p.rows) x[k] = shifted(x[k], -scale);
    }
}

// z: batch of mode solutions in columns of ldz elements, the first rows of which become those of the systems as they were.
// cols: 0 if the matrices were scaled as wholes.
template <typename T>
__device__ void restore(const SolverArgs& p) {
    const i64 size = p.rows * p.mode;
    for (i64 k = first_thread(); k < size * p.batch; k += all_threads()) {
        const i64 item = k / size, c = k % size / p.rows, row = k % p.rows;
        const Exponents y(p, item);
        if (!y.of[0]) continue;
        T* z = (T*)p.z + (item * p.mode + c) * p.ldz + row;
        *z = shifted(*z, (p.cols ? y.cols[row] : y.of[0]) - y.sides[c]);
    }
}

// A product that leaves the range on the way to its end: m * 2^e.
template <typename T>
struct Scaled {
    T m;
    i64 e;
    __device__ void normalise() {
        if (const int top = top_of(m)) m = shifted(m, BIAS - top), e += top - BIAS;
    }
    __device__ void multiply(Scaled other) {
        other.normalise();
        m = m * other.m;
        e += other.e;
        normalise();
    }
    __device__ T value() const { return shifted(m, (int)(e < -BIAS ? -BIAS : e > BIAS ? BIAS : e)); }
};

// x: LU of order rows of the matrix that "equilibrate" has scaled; y: its exponents; z: the determinant; cols bytes behind
// the status: the pivots, i64 from 1. One block.
template <typename T>
__device__ void determinant(const SolverArgs& p) {
    const T* x = (const T*)p.x;
    const i64* pivots = (const i64*)((const char*)p.status + p.cols);
    const int *y = (const int*)p.y, *by_row = y + p.ld - p.rows, *by_column = by_row - p.rows;
    __shared__ Scaled<T> products[THREADS];
    Scaled<T> product = {make(1, (T*)0), 0};
    for (i64 k = threadIdx.x; k < p.rows; k += THREADS) {
        const T sign = make(pivots[k] != k + 1 ? -1 : 1, (T*)0);
        product.multiply({sign * x[k * p.rows + k], y[0] ? -(by_row[k] + by_column[k]) : 0});
    }
    products[threadIdx.x] = product;
    for (int half = THREADS / 2; half; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) products[threadIdx.x].multiply(products[threadIdx.x + half]);
    }
    if (threadIdx.x == 0) *(T*)p.z = products[0].value();
}

ANY(extents)
ANY(equilibrate)
ANY(centre)
ANY(centre_factors)
ANY(uncentre)
ANY(restore)
ANY(determinant)
