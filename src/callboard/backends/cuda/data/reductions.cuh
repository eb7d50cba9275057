// How elements are joined. `none` is what nothing gives; `take` adds the next element of a thread, which stands behind
// those that it has had. The order of joining follows from the launch alone.

template <typename T>
struct Lowest;
template <>
struct Lowest<float> { static __device__ float value() { return __uint_as_float(0xff800000u); } };
template <>
struct Lowest<double> { static __device__ double value() { return (double)__uint_as_float(0xff800000u); } };
template <>
struct Lowest<bool> { static __device__ bool value() { return false; } };
template <typename T>
struct Lowest {
    static __device__ T value() { return IsSigned<T>::value ? (T)((u64)1 << (sizeof(T) * 8 - 1)) : T(0); }
};
template <typename T>
struct Highest;
template <>
struct Highest<float> { static __device__ float value() { return __uint_as_float(0x7f800000u); } };
template <>
struct Highest<double> { static __device__ double value() { return (double)__uint_as_float(0x7f800000u); } };
template <>
struct Highest<bool> { static __device__ bool value() { return true; } };
template <typename T>
struct Highest {
    static __device__ T value() { return (T)~Lowest<T>::value(); }
};

template <typename T, typename J>
struct Plain {
    typedef T A;
    static __device__ __forceinline__ A take(A total, T x, i64 at) { return J::join(total, x); }
    static __device__ __forceinline__ T total(A x) { return x; }
};
template <typename T>
struct Join_sum : Plain<T, Join_sum<T>> {
    static __device__ __forceinline__ T none() { return T{}; }
    static __device__ __forceinline__ T join(T x, T y) { return f_add(x, y); }
};
template <typename T>
struct Join_prod : Plain<T, Join_prod<T>> {
    static __device__ __forceinline__ T none() { return T{1}; }
    static __device__ __forceinline__ T join(T x, T y) { return f_multiply(x, y); }
};
template <typename T>
struct Join_min : Plain<T, Join_min<T>> {
    static __device__ __forceinline__ T none() { return Highest<T>::value(); }
    static __device__ __forceinline__ T join(T x, T y) { return f_minimum(x, y); }
};
template <typename T>
struct Join_max : Plain<T, Join_max<T>> {
    static __device__ __forceinline__ T none() { return Lowest<T>::value(); }
    static __device__ __forceinline__ T join(T x, T y) { return f_maximum(x, y); }
};
template <typename T>
struct Join_any : Plain<T, Join_any<T>> {
    static __device__ __forceinline__ T none() { return false; }
    static __device__ __forceinline__ T join(T x, T y) { return x || y; }
};
template <typename T>
struct Join_all : Plain<T, Join_all<T>> {
    static __device__ __forceinline__ T none() { return true; }
    static __device__ __forceinline__ T join(T x, T y) { return x && y; }
};

// A value and where it stands; at -1 there is none. The first of equal ones wins, and a NaN wins over all others.
template <typename T>
struct At {
    T value;
    i64 at;
};
template <typename T, bool LEAST>
struct Place {
    typedef At<T> A;
    static __device__ __forceinline__ A none() { return {T(0), -1}; }
    static __device__ __forceinline__ A take(A total, T x, i64 at) {
        const bool better = LEAST ? !(x >= total.value) : !(x <= total.value);  // so is a NaN
        return (better && total.value == total.value) || total.at < 0 ? A{x, at} : total;
    }
    static __device__ __forceinline__ i64 total(A x) { return x.at; }
    static __device__ __forceinline__ A join(A x, A y) {
        if (y.at < 0) return x;
        if (x.at < 0) return y;
        const bool nan = x.value != x.value, other = y.value != y.value;
        if (nan || other) return nan && (!other || x.at < y.at) ? x : y;
        if (x.value == y.value) return x.at < y.at ? x : y;
        return (LEAST ? x.value < y.value : x.value > y.value) ? x : y;
    }
};
template <typename T>
struct Join_argmin : Place<T, true> {};
template <typename T>
struct Join_argmax : Place<T, false> {};
