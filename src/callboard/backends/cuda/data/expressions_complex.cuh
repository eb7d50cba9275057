// Functions of expressions on complex numbers, each as NumPy has it. Infinities, NaN and signed zeros give what the array
// API standard 2025.12 says, which is C99's annex G but for expm1(-0 + 0i) and tanh of an infinite real part.

#include "complex.cuh"

template <typename R>
struct IsFloat<Complex<R>> { static const bool value = true; };

template <typename R>
__device__ __forceinline__ Complex<R> operator-(Complex<R> x, Complex<R> y) {
    return {x.re - y.re, x.im - y.im};
}
template <typename R>
__device__ __forceinline__ Complex<R> operator-(Complex<R> x) {
    return {-x.re, -x.im};
}
template <typename R>
__device__ Complex<R> operator/(Complex<R> x, Complex<R> y) {  // R. L. Smith, "Algorithm 116: Complex division", CACM 5, 1962
    if (fabs(y.re) >= fabs(y.im)) {
        if (y.re == R(0) && y.im == R(0)) return {x.re / fabs(y.re), x.im / fabs(y.re)};
        const R ratio = y.im / y.re, scale = R(1) / (y.re + y.im * ratio);
        return {(x.re + x.im * ratio) * scale, (x.im - x.re * ratio) * scale};
    }
    const R ratio = y.re / y.im, scale = R(1) / (y.im + y.re * ratio);
    return {(x.re * ratio + x.im) * scale, (x.im * ratio - x.re) * scale};
}
template <typename R>
__device__ __forceinline__ bool operator==(Complex<R> x, Complex<R> y) { return x.re == y.re && x.im == y.im; }
template <typename R>
__device__ __forceinline__ bool operator!=(Complex<R> x, Complex<R> y) { return x.re != y.re || x.im != y.im; }

#define C Complex<R>
#define OF(name) \
    template <typename R> \
    __device__ __forceinline__ C f_##name(C x)
// What is long is called: written out wherever it is used, it would take the compiler seconds
#define LONG(name) \
    template <typename R> \
    __device__ __noinline__ C f_##name(C x)

OF(negative) { return -x; }
OF(conj) { return {x.re, -x.im}; }
OF(square) { return {x.re * x.re - x.im * x.im, x.re * x.im + x.im * x.re}; }
OF(reciprocal) { return C{R(1), R(0)} / x; }
OF(round) { return {rint(x.re), rint(x.im)}; }
template <typename R>
__device__ __forceinline__ R f_abs(C x) { return hypot(x.re, x.im); }
template <typename R>
__device__ __forceinline__ R f_angle(C x) { return atan2(x.im, x.re); }
template <typename R>
__device__ __forceinline__ R f_real(C x) { return x.re; }
template <typename R>
__device__ __forceinline__ R f_imag(C x) { return x.im; }
__device__ __forceinline__ Complex<float> f_complex(float x, float y) { return {x, y}; }
__device__ __forceinline__ Complex<double> f_complex(double x, double y) { return {x, y}; }
template <typename R>
__device__ __forceinline__ bool f_isnan(C x) { return x.re != x.re || x.im != x.im; }
template <typename R>
__device__ __forceinline__ bool f_isinf(C x) { return f_isinf(x.re) || f_isinf(x.im); }
template <typename R>
__device__ __forceinline__ bool f_isfinite(C x) { return f_isfinite(x.re) && f_isfinite(x.im); }
OF(sign) {
    if (f_isnan(x)) return {x.re + x.im, x.re + x.im};
    const R size = f_abs(x);
    if (size == R(0)) return {R(0), R(0)};
    if (f_isinf(size)) {
        if (!f_isinf(x.re)) return {R(0), x.im > R(0) ? R(1) : R(-1)};
        if (!f_isinf(x.im)) return {x.re > R(0) ? R(1) : R(-1), R(0)};
    }
    return {x.re / size, x.im / size};
}

// C99's definitions (annex G). Where they leave a NaN that is not wanted, a product of 0 and infinity is avoided.
LONG(exp) {
    const R size = exp(x.re);
    if (x.im == R(0)) return {size, x.im};
    if (!f_isfinite(x.im)) {
        if (f_isinf(x.re)) return {size, size == R(0) ? R(0) : x.im - x.im};
        return {x.im - x.im, x.im - x.im};
    }
    if (size == R(0)) return {copysign(R(0), cos(x.im)), copysign(R(0), sin(x.im))};
    return {size * cos(x.im), size * sin(x.im)};
}
LONG(exp2) { return f_exp(C{x.re * R(0.6931471805599453), x.im * R(0.6931471805599453)}); }
LONG(expm1) {
    if (x.im == R(0)) return {expm1(x.re) + R(0), x.im};
    if (f_isinf(x.re) && !f_isfinite(x.im)) {
        const C y = f_exp(x);
        return {y.re - R(1), y.im};
    }
    const R half = sin(x.im * R(0.5));
    return {expm1(x.re) * cos(x.im) - R(2) * half * half, exp(x.re) * sin(x.im)};
}
template <typename R>
__device__ __noinline__ R log_of_size(C x) {  // log(hypot(x)), near 1 without cancellation
    R large = fabs(x.re), small = fabs(x.im);
    if (small > large) { const R t = large; large = small; small = t; }
    if (large > R(0.5) && large < R(2)) return R(0.5) * log1p(fma(large - R(1), large + R(1), small * small));
    return log(hypot(large, small));
}
LONG(log) { return {log_of_size(x), atan2(x.im, x.re)}; }
LONG(log2) { const C y = f_log(x); return {y.re * R(1.4426950408889634), y.im * R(1.4426950408889634)}; }
LONG(log10) { const C y = f_log(x); return {y.re * R(0.4342944819032518), y.im * R(0.4342944819032518)}; }
LONG(log1p) {
    const R half = R(0.5) * log1p(x.re * (R(2) + x.re) + x.im * x.im);
    const R size = fabs(x.re) < R(0.5) && fabs(x.im) < R(0.5) ? half : log_of_size(C{x.re + R(1), x.im});
    return {size, atan2(x.im, x.re + R(1))};
}
LONG(sqrt) {  // W. Kahan, "Branch cuts for complex elementary functions", 1987
    if (x.re == R(0) && x.im == R(0)) return {R(0), x.im};
    if (f_isinf(x.im)) return {fabs(x.im), x.im};
    if (f_isinf(x.re)) {
        if (x.re > R(0)) return {x.re, x.im == x.im ? copysign(R(0), x.im) : x.im};
        return {x.im == x.im ? R(0) : x.im, copysign(x.re, x.im)};
    }
    const R scale = fabs(x.re) > R(1e30) || fabs(x.im) > R(1e30) ? R(0.25) : R(1);
    const R re = x.re * scale, im = x.im * scale, back = scale == R(1) ? R(1) : R(2);
    const R t = sqrt(R(0.5) * (fabs(re) + hypot(re, im)));
    if (re >= R(0)) return {t * back, im / (R(2) * t) * back};
    return {fabs(im) / (R(2) * t) * back, copysign(t, im) * back};
}
LONG(sinh) {
    const bool whole = !f_isfinite(x.im) && (x.re == R(0) || f_isinf(x.re));
    return {whole ? x.re : sinh(x.re) * cos(x.im), x.im == R(0) ? x.im : cosh(x.re) * sin(x.im)};
}
LONG(cosh) {
    const bool wild = !f_isfinite(x.im), real = x.im == R(0) || (wild && x.re == R(0));
    const R none = copysign(R(0), x.re) * copysign(R(1), x.im);
    return {wild && f_isinf(x.re) ? fabs(x.re) : cosh(x.re) * cos(x.im), real ? none : sinh(x.re) * sin(x.im)};
}
LONG(tanh) {  // W. Kahan, as above
    if (f_isinf(x.re)) return {copysign(R(1), x.re), copysign(R(0), x.im)};
    if (!f_isfinite(x.im)) return {x.re == R(0) ? x.re : x.im - x.im, x.im - x.im};
    if (x.im == R(0)) return {tanh(x.re), x.im};
    if (fabs(x.re) > R(sizeof(R) == 4 ? 11 : 22)) {
        const R far = exp(-fabs(x.re));
        return {copysign(R(1), x.re), R(4) * sin(x.im) * cos(x.im) * far * far};
    }
    const R t = tan(x.im), beta = R(1) + t * t, s = sinh(x.re), rho = sqrt(R(1) + s * s);
    if (f_isinf(t)) return {rho / s, R(1) / t};
    const R scale = R(1) + beta * s * s;
    return {beta * rho * s / scale, t / scale};
}
LONG(sin) { const C y = f_sinh(C{-x.im, x.re}); return {y.im, -y.re}; }
LONG(cos) { return f_cosh(C{-x.im, x.re}); }
LONG(tan) { const C y = f_tanh(C{-x.im, x.re}); return {y.im, -y.re}; }
template <typename R>
__device__ R angle_to(R re) {  // of the point (re, infinity)
    if (f_isinf(re)) return R(re > R(0) ? 0.7853981633974483 : 2.356194490192345);
    return re == re ? R(1.5707963267948966) : re;
}
LONG(asinh) {  // W. Kahan, as above
    if (f_isinf(x.im)) return {copysign(x.im, x.re), copysign(angle_to(fabs(x.re)), x.im)};
    if (f_isinf(x.re)) return {x.re, copysign(x.im == x.im ? R(0) : x.im, x.im)};
    if (x.im == R(0)) return {asinh(x.re), x.im};
    const C s = f_sqrt(C{R(1) + x.im, -x.re}), t = f_sqrt(C{R(1) - x.im, x.re});
    return {asinh(s.re * t.im - s.im * t.re), atan2(x.im, s.re * t.re - s.im * t.im)};
}
LONG(acosh) {
    if (f_isinf(x.im)) return {fabs(x.im), copysign(angle_to(x.re), x.im)};
    if (x.im != x.im) return {f_isinf(x.re) ? fabs(x.re) : x.im, x.re == R(0) ? R(1.5707963267948966) : x.im};
    const C s = f_sqrt(C{x.re - R(1), x.im}), t = f_sqrt(C{x.re + R(1), x.im});
    return {asinh(s.re * t.re + s.im * t.im), R(2) * atan2(s.im, t.re)};
}
LONG(acos) {
    if (f_isinf(x.im)) return {angle_to(x.re), -x.im};
    if (x.im != x.im) return {x.re == R(0) ? R(1.5707963267948966) : x.im, f_isinf(x.re) ? fabs(x.re) : x.im};
    const C s = f_sqrt(C{R(1) - x.re, -x.im}), t = f_sqrt(C{R(1) + x.re, x.im});
    return {R(2) * atan2(s.re, t.re), asinh(t.re * s.im - t.im * s.re)};
}
LONG(asin) { const C y = f_asinh(C{-x.im, x.re}); return {y.im, -y.re}; }
LONG(atanh) {
    if (x.im != x.im) return {x.re == R(0) || f_isinf(x.re) ? copysign(R(0), x.re) : x.im, x.im};
    if (f_isinf(x.re) || f_isinf(x.im)) return {copysign(R(0), x.re), copysign(R(1.5707963267948966), x.im)};
    const R size = fabs(x.re), apart = R(1) - size;
    const R re = R(0.25) * log1p(R(4) * size / (apart * apart + x.im * x.im));
    return {copysign(re, x.re), R(0.5) * atan2(R(2) * x.im, apart * (R(1) + size) - x.im * x.im)};
}
LONG(atan) { const C y = f_atanh(C{-x.im, x.re}); return {y.im, -y.re}; }

template <typename R>
__device__ __noinline__ C f_pow(C x, C n) {  // by squaring where n is a small whole number, as NumPy
    if (n.re == R(0) && n.im == R(0)) return {R(1), R(0)};
    if (x.re == R(0) && x.im == R(0)) {
        if (n.re > R(0) && n.im == R(0)) return {R(0), R(0)};
        const R nan = R(0) / (x.re * x.re);
        return {nan, nan};
    }
    if (n.im == R(0) && n.re == trunc(n.re) && fabs(n.re) < R(100)) {
        C found = {R(1), R(0)}, base = x;
        for (int left = (int)fabs(n.re); left; left >>= 1) {
            if (left & 1) found = found * base;
            base = base * base;
        }
        return n.re < R(0) ? C{R(1), R(0)} / found : found;
    }
    const C power = n * f_log(x);
    return f_exp(power);
}
#undef OF
#undef LONG
#undef C

template <typename To, typename R>
__device__ __forceinline__ To converted(Complex<R> x) {
    if constexpr (sizeof(To) == 1) return x.re != R(0) || x.im != R(0);  // to bool
    else return To{(decltype(To::re))x.re, (decltype(To::re))x.im};
}
// Of a real number
template <typename To, typename From>
__device__ __forceinline__ To as_complex(From x) {
    return To{(decltype(To::re))x, 0};
}
