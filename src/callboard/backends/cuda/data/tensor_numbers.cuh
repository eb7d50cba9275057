// Numbers of tensors: what each dtype is computed in, and the operators on one and on two of them.

#include "complex.cuh"
#include "numbers.cuh"

// The order of callboard.kernel.tensor.operators.
enum Unary {
    IDENTITY, CONJ, NEG, ABS, RELU,
    SQRT, RCP, SIGMOID, TANH, EXP, LOG,
    SIN, COS, TAN, SINH, COSH, ASIN, ACOS, ATAN, ASINH, ACOSH, ATANH,
    CEIL, FLOOR, MISH, SWISH, SOFT_PLUS, SOFT_SIGN
};
enum Binary { ADD, MUL, MAX, MIN };

template <typename A>
struct Number {  // real floating types
    static __device__ A of(double re, double im) { return (A)re; }
    static __device__ bool is_zero(A x) { return x == A(0); }
    static __device__ A add(A x, A y) { return x + y; }
    static __device__ A mul(A x, A y) { return x * y; }
    static __device__ A lowest() { return -A(1) / A(0); }
    static __device__ A highest() { return A(1) / A(0); }
    static __device__ A unary(A x, int op);
};

template <typename I, typename U>
struct Whole {  // integers wrap around, hence the unsigned arithmetic
    static __device__ I of(double re, double im) { return (I)re; }
    static __device__ bool is_zero(I x) { return x == 0; }
    static __device__ I add(I x, I y) { return (I)((U)x + (U)y); }
    static __device__ I mul(I x, I y) { return (I)((U)x * (U)y); }
    static __device__ I lowest() { return (I)((U)1 << (sizeof(I) * 8 - 1)); }
    static __device__ I highest() { return (I)~((U)1 << (sizeof(I) * 8 - 1)); }
    static __device__ I unary(I x, int op) {
        switch (op) {
            case NEG: return (I)(0 - (U)x);
            case ABS: return x < 0 ? (I)(0 - (U)x) : x;
            case RELU: return x < 0 ? 0 : x;
        }
        return x;
    }
};
template <>
struct Number<int> : Whole<int, u32> {};
template <>
struct Number<i64> : Whole<i64, u64> {};

template <typename R>
struct Number<Complex<R>> {
    typedef Complex<R> C;
    static __device__ C of(double re, double im) { return {(R)re, (R)im}; }
    static __device__ bool is_zero(C x) { return ::is_zero(x); }
    static __device__ C add(C x, C y) { return x + y; }
    static __device__ C mul(C x, C y) { return x * y; }
    static __device__ C unary(C x, int op) {
        switch (op) {
            case NEG: return {-x.re, -x.im};
            case CONJ: return {x.re, -x.im};
        }
        return x;
    }
};

template <typename R>
__device__ R soft_plus(R x) {  // log(1 + exp(x)) without overflow
    return (x > R(0) ? x : R(0)) + log1p(exp(x > R(0) ? -x : x));
}

// Not inlined: one copy serves every kernel of its type.
template <typename R>
__device__ __noinline__ R function(R x, int op) {
    switch (op) {
        case NEG: return -x;
        case ABS: return fabs(x);
        case RELU: return x < R(0) ? R(0) : x;  // NaN stays
        case SQRT: return sqrt(x);
        case RCP: return R(1) / x;
        case SIGMOID: return R(1) / (R(1) + exp(-x));
        case TANH: return tanh(x);
        case EXP: return exp(x);
        case LOG: return log(x);
        case SIN: return sin(x);
        case COS: return cos(x);
        case TAN: return tan(x);
        case SINH: return sinh(x);
        case COSH: return cosh(x);
        case ASIN: return asin(x);
        case ACOS: return acos(x);
        case ATAN: return atan(x);
        case ASINH: return asinh(x);
        case ACOSH: return acosh(x);
        case ATANH: return atanh(x);
        case CEIL: return ceil(x);
        case FLOOR: return floor(x);
        case MISH: return x * tanh(soft_plus(x));
        case SWISH: return x / (R(1) + exp(-x));
        case SOFT_PLUS: return soft_plus(x);
        case SOFT_SIGN: return x / (R(1) + fabs(x));
    }
    return x;
}
template <typename A>
__device__ A Number<A>::unary(A x, int op) {
    return op == IDENTITY ? x : function<A>(x, op);
}

template <typename A>
__device__ A binary(A x, A y, int op) {
    switch (op) {
        case ADD: return Number<A>::add(x, y);
        case MUL: return Number<A>::mul(x, y);
        case MAX: return x != x ? x : y != y || y > x ? y : x;  // NaN wins
        default: return x != x ? x : y != y || y < x ? y : x;
    }
}
template <typename R>
__device__ Complex<R> binary(Complex<R> x, Complex<R> y, int op) {
    return op == ADD ? Number<Complex<R>>::add(x, y) : Number<Complex<R>>::mul(x, y);
}

template <typename A>
__device__ A neutral(int op) {
    return op == ADD ? A(0) : op == MUL ? A(1) : op == MAX ? Number<A>::lowest() : Number<A>::highest();
}
template <>
__device__ Complex<float> neutral<Complex<float>>(int op) {
    return {op == MUL ? 1.0f : 0.0f, 0.0f};
}
template <>
__device__ Complex<double> neutral<Complex<double>>(int op) {
    return {op == MUL ? 1.0 : 0.0, 0.0};
}
