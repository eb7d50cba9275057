// Complex numbers, aligned as their halves are: an array of them need not lie at a multiple of an element.
// Sums, products and the test for 0 are those of real types too, so that one kernel serves both.

template <typename R>
struct Complex {
    R re, im;
};

template <typename R>
__device__ Complex<R> operator+(Complex<R> x, Complex<R> y) {
    return {x.re + y.re, x.im + y.im};
}
template <typename R>
__device__ Complex<R> operator*(Complex<R> x, Complex<R> y) {
    return {x.re * y.re - x.im * y.im, x.re * y.im + x.im * y.re};
}

template <typename T>
__device__ bool is_zero(T x) {
    return x == T(0);
}
template <typename R>
__device__ bool is_zero(Complex<R> x) {
    return x.re == R(0) && x.im == R(0);
}
