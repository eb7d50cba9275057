// What stands around cuSOLVER's routines: NaN are counted and taken out, triangles cleared, pivots counted from 0,
// ranges of eigenvalues, packed eigenvectors. Matrices are column-major; those of a batch follow each other.
// None of CUDA's headers: NVRTC finds them only where a toolkit is installed.

#include "solver.cuh"

// x: ``rows`` reals. Elements are counted, so a complex one (mode bit 0: pairs) whose two halves are bad counts once.
// Bit 1: count them in status[WITHOUT_RESULT].
template <typename R>
__device__ void finite(const SolverArgs& p) {
    R* x = (R*)p.x;
    const i64 width = p.mode & 1 ? 2 : 1;
    int bad = 0;
    for (i64 i = first_thread() * width; i < p.rows; i += all_threads() * width) {
        bool fine = is_finite(x[i]) && (width == 1 || is_finite(x[i + 1]));
        if (!fine) {
            ++bad;
            x[i] = 0;
            if (width == 2) x[i + 1] = 0;
        }
    }
    if (bad) atomicAdd(p.status + (p.mode & 2 ? WITHOUT_RESULT : NOT_FINITE), bad);
}

// x: ``rows`` reals, all NaN if status[WITHOUT_RESULT] is not 0.
template <typename R>
__device__ void without_result(const SolverArgs& p) {
    if (!p.status[WITHOUT_RESULT]) return;
    for (i64 i = first_thread(); i < p.rows; i += all_threads())
        ((R*)p.x)[i] = (R)__longlong_as_double(0x7ff8000000000000ll);
}

// x: batch of rows x cols. mode 0: zero above the diagonal; 1: below it.
template <typename T>
__device__ void triangle(const SolverArgs& p) {
    T* x = (T*)p.x;
    const i64 size = p.rows * p.cols;
    for (i64 k = first_thread(); k < size * p.batch; k += all_threads()) {
        const i64 row = k % size % p.rows, col = k % size / p.rows;
        if (p.mode ? row > col : row < col) x[k] = make(0, (T*)0);
    }
}

// x: rows x cols, the identity.
template <typename T>
__device__ void identity(const SolverArgs& p) {
    T* x = (T*)p.x;
    for (i64 k = first_thread(); k < p.rows * p.cols; k += all_threads())
        x[k] = make(k % p.rows == k / p.rows ? 1 : 0, (T*)0);
}

// x: rows complex numbers.
template <typename R>
__device__ void conjugate(const SolverArgs& p) {
    Complex<R>* x = (Complex<R>*)p.x;
    for (i64 k = first_thread(); k < p.rows; k += all_threads()) x[k].im = -x[k].im;
}

// x: matrix with leading dimension ld, rows of its diagonal. One block. status[DIAGONAL]: first zero, from 1.
template <typename T>
__device__ void diagonal(const SolverArgs& p) {
    const T* x = (const T*)p.x;
    __shared__ int first;
    if (threadIdx.x == 0) first = 0x7fffffff;
    __syncthreads();
    for (i64 k = threadIdx.x; k < p.rows; k += blockDim.x)
        if (is_zero(x[k * p.ld + k])) atomicMin(&first, (int)k + 1);
    __syncthreads();
    if (threadIdx.x == 0 && first != 0x7fffffff) p.status[DIAGONAL] = first;
}

__device__ i64 get_index(const void* x, i64 i, bool wide) { return wide ? ((const i64*)x)[i] : ((const int*)x)[i]; }
__device__ void set_index(void* x, i64 i, bool wide, i64 value) {
    if (wide) ((i64*)x)[i] = value;
    else ((int*)x)[i] = (int)value;
}

// x: rows pivots from 1 (mode bit 0: i64); y: the same from 0 (bit 1: i64).
extern "C" __global__ void pivots_out(const __grid_constant__ SolverArgs p) {
    for (i64 k = first_thread(); k < p.rows; k += all_threads())
        set_index(p.y, k, p.mode & 2, get_index(p.x, k, p.mode & 1) - 1);
}

// x: rows pivots from 0 (mode bit 0: i64), each below cols; y: the same from 1 (bit 1: i64). Bad ones exchange nothing.
extern "C" __global__ void pivots_in(const __grid_constant__ SolverArgs p) {
    for (i64 k = first_thread(); k < p.rows; k += all_threads()) {
        i64 row = get_index(p.x, k, p.mode & 1);
        if (row < 0 || row >= p.cols) {
            atomicAdd(p.status + BAD_INDICES, 1);
            row = k % p.cols;
        }
        set_index(p.y, k, p.mode & 2, row + 1);
    }
}

// x: addresses of rows items, which start at y and lie cols bytes apart.
extern "C" __global__ void pointers(const __grid_constant__ SolverArgs p) {
    for (i64 k = first_thread(); k < p.rows; k += all_threads()) ((u64*)p.x)[k] = (u64)p.y + k * p.cols;
}

// x: what each of rows items says, i32. One block.
extern "C" __global__ void infos(const __grid_constant__ SolverArgs p) {
    const int* x = (const int*)p.x;
    __shared__ int first, failed;
    if (threadIdx.x == 0) first = 0x7fffffff, failed = 0;
    __syncthreads();
    for (i64 k = threadIdx.x; k < p.rows; k += blockDim.x)
        if (x[k]) {
            atomicMin(&first, (int)k);
            atomicAdd(&failed, 1);
        }
    __syncthreads();
    if (threadIdx.x == 0 && failed) {
        p.status[INFO] = x[first];
        p.status[ITEM] = first;
        p.status[FAILED] = failed;
    }
}

// x: rows ascending eigenvalues; y: cols of them, those with low < w <= high, then NaN; z: how many, i64. One block.
template <typename R>
__device__ void range_values(const SolverArgs& p) {
    const R* x = (const R*)p.x;
    __shared__ i64 first, found;
    if (threadIdx.x == 0) {
        first = 0;
        while (first < p.rows && !((double)x[first] > p.low)) ++first;
        found = 0;
        while (first + found < p.rows && (double)x[first + found] <= p.high) ++found;
        p.status[FIRST] = (int)first;
        p.status[FOUND] = (int)found;
        *(i64*)p.z = found;
    }
    __syncthreads();
    for (i64 k = threadIdx.x; k < p.cols; k += blockDim.x)
        ((R*)p.y)[k] = k < found ? x[first + k] : (R)__longlong_as_double(0x7ff8000000000000ll);
}

// x: rows x rows eigenvectors; y: rows x cols, those of the range, then NaN.
template <typename T, typename R>
__device__ void range_vectors(const SolverArgs& p) {
    const i64 first = p.status[FIRST], found = p.status[FOUND];
    for (i64 k = first_thread(); k < p.rows * p.cols; k += all_threads()) {
        const i64 col = k / p.rows;
        ((T*)p.y)[k] = col < found ? ((const T*)p.x)[first * p.rows + k]
                                   : make((R)__longlong_as_double(0x7ff8000000000000ll), (T*)0);
    }
}

// x: rows complex eigenvalues of a real matrix; y: its packed eigenvectors, real; z: the eigenvectors, complex.
// Of a conjugate pair, the first column holds the real part and the second the imaginary part of the first vector.
template <typename R>
__device__ void unpack(const SolverArgs& p) {
    const Complex<R>* w = (const Complex<R>*)p.x;
    const R* packed = (const R*)p.y;
    Complex<R>* v = (Complex<R>*)p.z;
    for (i64 k = first_thread(); k < p.rows * p.rows; k += all_threads()) {
        const R im = w[k / p.rows].im;
        if (im > 0) v[k] = {packed[k], packed[k + p.rows]};
        else if (im < 0) v[k] = {packed[k - p.rows], -packed[k]};
        else v[k] = {packed[k], 0};
    }
}

// x: offsets of rows rows, y: indices of cols elements (mode bit 0: i64); z: both as i32, offsets first.
// status[BAD_INDICES] counts what makes it no matrix of rows columns.
extern "C" __global__ void csr_check(const __grid_constant__ SolverArgs p) {
    const bool wide = p.mode & 1;
    int *offsets = (int*)p.z, *indices = offsets + p.rows + 1, bad = 0;
    for (i64 k = first_thread(); k <= p.rows; k += all_threads()) {
        const i64 start = get_index(p.x, k, wide);
        bad += start < 0 || start > p.cols || (k == 0 && start != 0) || (k == p.rows && start != p.cols);
        bad += k < p.rows && start > get_index(p.x, k + 1, wide);
        offsets[k] = (int)start;
    }
    for (i64 k = first_thread(); k < p.cols; k += all_threads()) {
        const i64 col = get_index(p.y, k, wide);
        bad += col < 0 || col >= p.rows;
        indices[k] = (int)col;
    }
    if (bad) atomicAdd(p.status + BAD_INDICES, bad);
}

// x: offsets and indices as csr_check leaves them; rows and cols as there. status[FAILED]: indices that do not ascend.
extern "C" __global__ void csr_ascending(const __grid_constant__ SolverArgs p) {
    if (p.status[BAD_INDICES]) return;
    const int *offsets = (const int*)p.x, *indices = offsets + p.rows + 1;
    int bad = 0;
    for (i64 row = first_thread(); row < p.rows; row += all_threads())
        for (int k = offsets[row] + 1; k < offsets[row + 1]; ++k) bad += indices[k] <= indices[k - 1];
    if (bad) atomicAdd(p.status + FAILED, bad);
}

__device__ double unlike(float a, float b) { return fabs((double)a - (double)b); }
__device__ double unlike(double a, double b) { return fabs(a - b); }
template <typename R>
__device__ double unlike(Complex<R> a, Complex<R> b) {
    return hypot((double)a.re - (double)b.re, (double)a.im + (double)b.im);
}
__device__ double real_of(float a) { return a; }
__device__ double real_of(double a) { return a; }
template <typename R>
__device__ double real_of(Complex<R> a) {
    return a.re;
}
// Of kernel/solver/failures.py.
template <typename T> struct HermitianTolerance { static __device__ double of() { return 1e-4; } };
template <> struct HermitianTolerance<double> { static __device__ double of() { return 1e-10; } };
template <> struct HermitianTolerance<Complex<double>> { static __device__ double of() { return 1e-10; } };

// The place of an element of a row whose columns ascend; the row's end if it is not there.
__device__ int place_of(const int* offsets, const int* indices, int row, int column) {
    const int end = offsets[row + 1];
    int low = offsets[row], high = end;
    while (low < high) {
        const int middle = low + (high - low) / 2;
        if (indices[middle] < column) low = middle + 1;
        else high = middle;
    }
    return low < end && indices[low] == column ? low : end;
}

// The size of a diagonal element; 0 if there is none.
template <typename T>
__device__ double diagonal_of(const T* values, const int* offsets, const int* indices, int row) {
    const int k = place_of(offsets, indices, row, row);
    return k == offsets[row + 1] ? 0 : fabs(real_of(values[k]));
}

// x: values, y: offsets and indices as of csr_ascending. status[DIAGONAL]: elements without a conjugate mirror image.
template <typename T>
__device__ void csr_mirrored(const SolverArgs& p) {
    if (p.status[BAD_INDICES] || p.status[FAILED]) return;
    const T* values = (const T*)p.x;
    const int *offsets = (const int*)p.y, *indices = offsets + p.rows + 1;
    int bad = 0;
    for (i64 row = first_thread(); row < p.rows; row += all_threads())
        for (int k = offsets[row]; k < offsets[row + 1]; ++k) {
            const int column = indices[k], mirror = place_of(offsets, indices, column, (int)row);
            const bool there = mirror != offsets[column + 1];
            const double difference = there ? unlike(values[k], values[mirror]) : 0;
            if (there && difference == 0) continue;
            const double limit = HermitianTolerance<T>::of() * sqrt(diagonal_of(values, offsets, indices, (int)row)) *
                                 sqrt(diagonal_of(values, offsets, indices, column));
            bad += !there || difference > limit;
        }
    if (bad) atomicAdd(p.status + DIAGONAL, bad);
}

// x and y: rows words of 32 bits. status[mode]: blocks that have found differences.
extern "C" __global__ void differing(const __grid_constant__ SolverArgs p) {
    const int *x = (const int*)p.x, *y = (const int*)p.y;
    int found = 0;
    for (i64 k = first_thread(); k < p.rows; k += all_threads()) found |= x[k] != y[k];
    if (__syncthreads_or(found) && threadIdx.x == 0) atomicAdd(p.status + p.mode, 1);
}

__device__ Complex<double> wide(double v) { return {v, 0}; }
__device__ Complex<double> wide(float v) { return {v, 0}; }
template <typename R>
__device__ Complex<double> wide(Complex<R> v) { return {v.re, v.im}; }
__device__ double magnitude(Complex<double> v) { return fabs(v.re) + fabs(v.im); }

// x: values, y: offsets and indices as of csr_ascending. status[ZEROS]: values that are 0; status[HOLLOW]: rows whose
// element of the diagonal is 0 or not stored.
template <typename T>
__device__ void csr_zeros(const SolverArgs& p) {
    if (p.status[BAD_INDICES] || p.status[FAILED]) return;
    const T* values = (const T*)p.x;
    const int *offsets = (const int*)p.y, *indices = offsets + p.rows + 1;
    int zeros = 0, hollow = 0;
    for (i64 row = first_thread(); row < p.rows; row += all_threads()) {
        bool diagonal = false;
        for (int k = offsets[row]; k < offsets[row + 1]; ++k) {
            const bool zero = magnitude(wide(values[k])) == 0;
            zeros += zero;
            diagonal |= indices[k] == row && !zero;
        }
        hollow += !diagonal;
    }
    if (zeros) atomicAdd(p.status + ZEROS, zeros);
    if (hollow) atomicAdd(p.status + HOLLOW, hollow);
}

// Of numbers that are not negative, the order is that of their bits; NaN comes last. Few threads have a larger one.
__device__ void largest(u64* at, double v) {
    const u64 bits = (u64)__double_as_longlong(v);
    if (bits > *(volatile u64*)at) atomicMax(at, bits);
}

// x: offsets and indices of a matrix of rows rows, y: its values, z: batch right-hand sides; the solutions are cols
// bytes behind the status. ld bytes behind it: the largest sum of a row of the matrix; then of each system the largest
// element of b, x and b - A x, all of them 0 before.
template <typename T>
__device__ void csr_residual(const SolverArgs& p) {
    const int *offsets = (const int*)p.x, *indices = offsets + p.rows + 1;
    const T *values = (const T*)p.y, *b = (const T*)p.z, *x = (const T*)((const char*)p.status + p.cols);
    u64* norms = (u64*)((char*)p.status + p.ld);
    for (i64 k = first_thread(); k < p.rows * p.batch; k += all_threads()) {
        const i64 row = k % p.rows, first = k - row;
        Complex<double> left = wide(b[k]);
        double sum = 0;
        for (int e = offsets[row]; e < offsets[row + 1]; ++e) {
            const Complex<double> a = wide(values[e]), term = a * wide(x[first + indices[e]]);
            left = {left.re - term.re, left.im - term.im};
            sum += magnitude(a);
        }
        u64* of = norms + 1 + 3 * (k / p.rows);
        largest(norms, sum);
        largest(of, magnitude(wide(b[k])));
        largest(of + 1, magnitude(wide(x[k])));
        largest(of + 2, magnitude(left));
    }
}

// The norms of csr_residual; low: the largest backward error that is none. status[RESIDUAL]: solutions that are none.
// The norm of the matrix is no 0, and what it is multiplied by may be very large.
extern "C" __global__ void csr_judge(const __grid_constant__ SolverArgs p) {
    const double* norms = (const double*)((const char*)p.status + p.ld);
    for (i64 k = threadIdx.x; k < p.batch; k += blockDim.x) {
        const double *of = norms + 1 + 3 * k;
        const bool numbers = is_finite(of[1]) && is_finite(of[2]);
        if (!numbers || of[2] / norms[0] > p.low * (of[1] + of[0] / norms[0])) atomicAdd(p.status + RESIDUAL, 1);
    }
}

REAL(finite)
REAL(without_result)
REAL(conjugate)
REAL(range_values)
REAL(unpack)
ANY(triangle)
ANY(identity)
ANY(diagonal)
ANY(csr_mirrored)
ANY(csr_residual)
ANY(csr_zeros)

extern "C" __global__ void range_vectors_f32(const __grid_constant__ SolverArgs p) { range_vectors<float, float>(p); }
extern "C" __global__ void range_vectors_f64(const __grid_constant__ SolverArgs p) { range_vectors<double, double>(p); }
extern "C" __global__ void range_vectors_c64(const __grid_constant__ SolverArgs p) {
    range_vectors<Complex<float>, float>(p);
}
extern "C" __global__ void range_vectors_c128(const __grid_constant__ SolverArgs p) {
    range_vectors<Complex<double>, double>(p);
}
