// Functions of expressions on real numbers, each as NumPy has it. f16 and bf16 are computed in float.

#include "numbers.cuh"

typedef signed char i8;
typedef short i16;
typedef int i32;

// -- which type an integer wraps around in ------------------------------------------------------------------------------

template <typename T>
struct Around { typedef u32 U; };
template <>
struct Around<i64> { typedef u64 U; };
template <>
struct Around<u64> { typedef u64 U; };

template <typename T>
struct IsFloat { static const bool value = false; };
template <>
struct IsFloat<float> { static const bool value = true; };
template <>
struct IsFloat<double> { static const bool value = true; };

template <typename T>
struct IsSigned { static const bool value = T(-1) < T(0); };

// -- arithmetic ---------------------------------------------------------------------------------------------------------

template <typename T>
__device__ __forceinline__ T f_add(T x, T y) {
    if constexpr (IsFloat<T>::value) return x + y;
    else return (T)((typename Around<T>::U)x + (typename Around<T>::U)y);
}
__device__ __forceinline__ bool f_add(bool x, bool y) { return x || y; }
template <typename T>
__device__ __forceinline__ T f_subtract(T x, T y) {
    if constexpr (IsFloat<T>::value) return x - y;
    else return (T)((typename Around<T>::U)x - (typename Around<T>::U)y);
}
template <typename T>
__device__ __forceinline__ T f_multiply(T x, T y) {
    if constexpr (IsFloat<T>::value) return x * y;
    else return (T)((typename Around<T>::U)x * (typename Around<T>::U)y);
}
__device__ __forceinline__ bool f_multiply(bool x, bool y) { return x && y; }
template <typename T>
__device__ __forceinline__ T f_divide(T x, T y) { return x / y; }

__device__ __forceinline__ float remainder_of(float x, float y) { return fmodf(x, y); }
__device__ __forceinline__ double remainder_of(double x, double y) { return fmod(x, y); }

template <typename T>
__device__ T f_floor_divide(T x, T y) {  // rounded down; integers by 0 give 0
    if constexpr (IsFloat<T>::value) {
        if (y == T(0) || isinf(x) || isinf(y)) return floor(x / y);
        T rest = remainder_of(x, y);
        T quotient = (x - rest) / y;
        if (rest != T(0) && (y < T(0)) != (rest < T(0))) quotient -= T(1);
        if (quotient == T(0)) return copysign(T(0), x / y);
        const T down = floor(quotient);
        return quotient - down > T(0.5) ? down + T(1) : down;
    } else {
        if (y == T(0)) return T(0);
        if constexpr (IsSigned<T>::value) {
            if (y == T(-1)) return (T)(0 - (typename Around<T>::U)x);
            const T quotient = x / y;
            return x % y != 0 && (x < 0) != (y < 0) ? (T)(quotient - 1) : quotient;
        } else {
            return x / y;
        }
    }
}
template <typename T>
__device__ T f_remainder(T x, T y) {  // of the sign of y
    if constexpr (IsFloat<T>::value) {
        const T rest = remainder_of(x, y);
        if (y == T(0)) return rest;
        if (rest == T(0)) return copysign(T(0), y);
        return (y < T(0)) != (rest < T(0)) ? rest + y : rest;
    } else {
        if (y == T(0)) return T(0);
        if constexpr (IsSigned<T>::value) {
            if (y == T(-1)) return T(0);
            const T rest = (T)(x % y);
            return rest != 0 && (rest < 0) != (y < 0) ? (T)(rest + y) : rest;
        } else {
            return x % y;
        }
    }
}
template <typename T>
__device__ T f_fmod(T x, T y) {  // of the sign of x
    if constexpr (IsFloat<T>::value) return remainder_of(x, y);
    else return y == T(0) || (IsSigned<T>::value && y == T(-1)) ? T(0) : (T)(x % y);
}

template <typename T>
__device__ T f_pow(T x, T n) {  // integers to a negative power: 1 / x ** -n, cut off
    if constexpr (IsFloat<T>::value) {
        return pow(x, n);
    } else {
        typedef typename Around<T>::U U;
        if (IsSigned<T>::value && n < T(0)) return x == T(1) ? T(1) : x == T(-1) ? (n & 1 ? x : T(1)) : T(0);
        U found = 1, base = (U)x;
        for (U left = (U)n; left; left >>= 1, base *= base) {
            if (left & 1) found *= base;
        }
        return (T)found;
    }
}

template <typename T>
__device__ __forceinline__ T f_negative(T x) {
    if constexpr (IsFloat<T>::value) return -x;
    else return (T)(0 - (typename Around<T>::U)x);
}
template <typename T>
__device__ __forceinline__ T f_positive(T x) { return x; }
template <typename T>
__device__ __forceinline__ T f_abs(T x) {
    if constexpr (IsFloat<T>::value) return fabs(x);
    else return IsSigned<T>::value && x < T(0) ? f_negative(x) : x;
}
__device__ __forceinline__ bool f_abs(bool x) { return x; }
template <typename T>
__device__ __forceinline__ T f_sign(T x) { return x > T(0) ? T(1) : x < T(0) ? (T)-1 : x != x ? x : T(0); }
template <typename T>
__device__ __forceinline__ T f_square(T x) { return f_multiply(x, x); }
template <typename T>
__device__ __forceinline__ T f_reciprocal(T x) { return T(1) / x; }

// -- the larger and the smaller -----------------------------------------------------------------------------------------

template <typename T>
__device__ __forceinline__ T f_maximum(T x, T y) { return x != x || x > y ? x : y; }  // NaN wins
template <typename T>
__device__ __forceinline__ T f_minimum(T x, T y) { return x != x || x < y ? x : y; }
template <typename T>
__device__ __forceinline__ T f_fmax(T x, T y) { return y != y || x > y ? x : y; }  // NaN loses
template <typename T>
__device__ __forceinline__ T f_fmin(T x, T y) { return y != y || x < y ? x : y; }

// -- comparisons and logic ----------------------------------------------------------------------------------------------

#define COMPARISON(name, op) \
    template <typename T> \
    __device__ __forceinline__ bool f_##name(T x, T y) { return x op y; }
COMPARISON(equal, ==)
COMPARISON(not_equal, !=)
COMPARISON(less, <)
COMPARISON(less_equal, <=)
COMPARISON(greater, >)
COMPARISON(greater_equal, >=)
#undef COMPARISON

// u64 beside signed integers, by value
#define MIXED(name, op) \
    template <typename S> \
    __device__ __forceinline__ bool f_##name(S x, u64 y) { return x < 0 ? -1 op 0 : (u64)x op y; } \
    template <typename S> \
    __device__ __forceinline__ bool f_##name(u64 x, S y) { return y < 0 ? 0 op -1 : x op (u64)y; } \
    __device__ __forceinline__ bool f_##name(u64 x, u64 y) { return x op y; }
MIXED(equal, ==)
MIXED(not_equal, !=)
MIXED(less, <)
MIXED(less_equal, <=)
MIXED(greater, >)
MIXED(greater_equal, >=)
#undef MIXED

__device__ __forceinline__ bool f_logical_and(bool x, bool y) { return x && y; }
__device__ __forceinline__ bool f_logical_or(bool x, bool y) { return x || y; }
__device__ __forceinline__ bool f_logical_xor(bool x, bool y) { return x != y; }
__device__ __forceinline__ bool f_logical_not(bool x) { return !x; }
template <typename T>
__device__ __forceinline__ T f_where(bool condition, T x, T y) { return condition ? x : y; }

// -- bits ---------------------------------------------------------------------------------------------------------------

template <typename T>
__device__ __forceinline__ T f_bitwise_and(T x, T y) { return (T)(x & y); }
template <typename T>
__device__ __forceinline__ T f_bitwise_or(T x, T y) { return (T)(x | y); }
template <typename T>
__device__ __forceinline__ T f_bitwise_xor(T x, T y) { return (T)(x ^ y); }
template <typename T>
__device__ __forceinline__ T f_bitwise_invert(T x) { return (T)~x; }
__device__ __forceinline__ bool f_bitwise_invert(bool x) { return !x; }
template <typename T>
__device__ __forceinline__ T f_bitwise_left_shift(T x, T n) {  // by more than there are, or by less than 0: nothing stays
    return (u64)n < sizeof(T) * 8 ? (T)((typename Around<T>::U)x << n) : T(0);
}
template <typename T>
__device__ __forceinline__ T f_bitwise_right_shift(T x, T n) {
    return (u64)n < sizeof(T) * 8 ? (T)(x >> n) : IsSigned<T>::value && x < T(0) ? (T)-1 : T(0);
}
template <typename T>
__device__ __forceinline__ u8 f_bitwise_count(T x) {
    const T size = f_abs(x);
    if constexpr (sizeof(T) == 8) return (u8)__popcll((u64)size);
    else return (u8)__popc((u32)size & (sizeof(T) == 4 ? 0xffffffffu : (1u << sizeof(T) * 8 % 32) - 1));
}

// -- what a number is ---------------------------------------------------------------------------------------------------

template <typename T>
__device__ __forceinline__ bool f_isnan(T x) { return x != x; }
template <typename T>
__device__ __forceinline__ bool f_isinf(T x) {
    if constexpr (IsFloat<T>::value) return fabs(x) > T(1) && x == x + x;
    else return false;
}
template <typename T>
__device__ __forceinline__ bool f_isfinite(T x) {
    if constexpr (IsFloat<T>::value) return x - x == T(0);
    else return true;
}
__device__ __forceinline__ bool f_signbit(float x) { return __float_as_uint(x) >> 31; }
__device__ __forceinline__ bool f_signbit(double x) { return (u64)__double_as_longlong(x) >> 63; }
template <typename T>
__device__ __forceinline__ T f_copysign(T x, T y) { return copysign(x, y); }

template <typename W>
__device__ u16 neighbour(u16 x, u16 y, float from, float to) {  // of a 16-bit type with the bits x
    if (from != from || to != to) return W::NOT_A_NUMBER;
    if (from == to) return y;
    if (from == 0.f) return (u16)((y & 0x8000) | 1);
    return (from < to) == (from > 0.f) ? (u16)(x + 1) : (u16)(x - 1);
}
struct NanOfF16 { static const u16 NOT_A_NUMBER = 0x7e00; };
struct NanOfBf16 { static const u16 NOT_A_NUMBER = 0x7fc0; };

__device__ __forceinline__ float f_nextafter(float x, float y) { return nextafterf(x, y); }
__device__ __forceinline__ double f_nextafter(double x, double y) { return nextafter(x, y); }
__device__ __forceinline__ float f_nextafter_f16(float x, float y) {
    return widen<float>(Half{neighbour<NanOfF16>(narrow<Half>(x).bits, narrow<Half>(y).bits, x, y)});
}
__device__ __forceinline__ float f_nextafter_bf16(float x, float y) {
    return widen<float>(Brain{neighbour<NanOfBf16>(narrow<Brain>(x).bits, narrow<Brain>(y).bits, x, y)});
}

// -- complex parts of real numbers --------------------------------------------------------------------------------------

template <typename T>
__device__ __forceinline__ T f_real(T x) { return x; }
template <typename T>
__device__ __forceinline__ T f_imag(T x) { return T(0); }
template <typename T>
__device__ __forceinline__ T f_conj(T x) { return x; }

// -- whole numbers ------------------------------------------------------------------------------------------------------

#define WHOLE(name, function) \
    template <typename T> \
    __device__ __forceinline__ T f_##name(T x) { \
        if constexpr (IsFloat<T>::value) return function(x); \
        else return x; \
    }
WHOLE(floor, floor)
WHOLE(ceil, ceil)
WHOLE(trunc, trunc)
WHOLE(round, rint)
#undef WHOLE

// -- roots, powers, angles ----------------------------------------------------------------------------------------------

#define UNARY(name, single, twice) \
    __device__ __forceinline__ float f_##name(float x) { return single(x); } \
    __device__ __forceinline__ double f_##name(double x) { return twice(x); }
UNARY(sqrt, sqrtf, sqrt)
UNARY(cbrt, cbrtf, cbrt)
UNARY(rsqrt, rsqrtf, rsqrt)
UNARY(exp, expf, exp)
UNARY(exp2, exp2f, exp2)
UNARY(expm1, expm1f, expm1)
UNARY(log, logf, log)
UNARY(log2, log2f, log2)
UNARY(log10, log10f, log10)
UNARY(log1p, log1pf, log1p)
UNARY(sin, sinf, sin)
UNARY(cos, cosf, cos)
UNARY(tan, tanf, tan)
UNARY(sinh, sinhf, sinh)
UNARY(cosh, coshf, cosh)
UNARY(tanh, tanhf, tanh)
UNARY(asin, asinf, asin)
UNARY(acos, acosf, acos)
UNARY(atan, atanf, atan)
UNARY(asinh, asinhf, asinh)
UNARY(acosh, acoshf, acosh)
UNARY(atanh, atanhf, atanh)
UNARY(erf, erff, erf)
UNARY(erfc, erfcf, erfc)
UNARY(gamma, tgammaf, tgamma)
#undef UNARY
__device__ __forceinline__ float f_lgamma(float x) { return f_isinf(x) ? x : lgammaf(x); }  // as SciPy: -inf at -inf
__device__ __forceinline__ double f_lgamma(double x) { return f_isinf(x) ? x : lgamma(x); }

template <typename T>
__device__ __forceinline__ T f_deg2rad(T x) { return x * T(0.017453292519943295); }
template <typename T>
__device__ __forceinline__ T f_rad2deg(T x) { return x * T(57.29577951308232); }
template <typename T>
__device__ __forceinline__ T f_atan2(T y, T x) { return atan2(y, x); }
template <typename T>
__device__ __forceinline__ T f_hypot(T x, T y) { return hypot(x, y); }
template <typename T>
__device__ T f_logaddexp(T x, T y) {
    if (x == y) return x + T(0.6931471805599453);  // equal infinities, too
    const T apart = x - y;
    return apart > T(0) ? x + log1p(exp(-apart)) : apart <= T(0) ? y + log1p(exp(apart)) : apart;
}

// -- conversions --------------------------------------------------------------------------------------------------------

template <typename To, typename From>
__device__ __forceinline__ To converted(From x) {
    return (To)x;
}
// Rounded to a 16-bit type, and held in a float
template <typename From>
__device__ __forceinline__ float as_f16(From x) {
    if constexpr (sizeof(From) > 2 && !(IsFloat<From>::value && sizeof(From) == 4))
        return widen<float>(narrow<Half>((double)x));
    else return widen<float>(narrow<Half>((float)x));
}
template <typename From>
__device__ __forceinline__ float as_bf16(From x) {
    return widen<float>(narrow<Brain>((float)x));
}

// -- memory -------------------------------------------------------------------------------------------------------------

template <typename T, int N>
struct alignas(sizeof(T) * N > 16 ? 16 : sizeof(T) * N) Pack { T at[N]; };
template <typename T>
struct Pack<T, 1> { T at[1]; };

struct Divider {  // by a number known before the launch: of 31 bits, by a multiplication (Granlund and Montgomery, PLDI 1994)
    u32 divisor, factor, shift;
    __device__ __forceinline__ u32 operator()(u32 n) const { return (__umulhi(n, factor) + n) >> shift; }
};
