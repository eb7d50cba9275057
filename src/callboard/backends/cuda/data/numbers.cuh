// Numbers as they are stored, and the way to what they are computed with and back: the one place for f16, bf16 and fp8.
// (One element of any type to any other, as NumPy and ml_dtypes have it, is in convert.cuh.)
// None of CUDA's headers: NVRTC finds them only where a toolkit is installed. Of callboard's headers, a source includes each once.

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

struct Half { u16 bits; };
struct Brain { u16 bits; };
struct F8e4m3 { u8 bits; };
struct F8e5m2 { u8 bits; };

// -- widen<A>(x): exact, where A holds what T does ----------------------------------------------------------------------

template <typename A, typename T>
__device__ A widen(T x) {  // as C converts: what is signed is extended by its sign
    return (A)x;
}
template <>
__device__ float widen<float, Half>(Half x) {
    float f;
    asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(x.bits));
    return f;
}
template <>
__device__ float widen<float, Brain>(Brain x) {
    return __uint_as_float((u32)x.bits << 16);
}
template <>
__device__ float widen<float, F8e5m2>(F8e5m2 x) {  // the upper half of an f16
    return widen<float>(Half{(u16)(x.bits << 8)});
}
template <>
__device__ float widen<float, F8e4m3>(F8e4m3 x) {  // in an f16 the exponent has another bias: 15, not 7
    if ((x.bits & 0x7f) == 0x7f) {
        return __uint_as_float(0x7fc00000);
    }
    return 256.f * widen<float>(Half{(u16)((x.bits & 0x80) << 8 | (x.bits & 0x7f) << 7)});
}

// -- narrow<T>(x): floating types to nearest, ties to even, too large is infinite ---------------------------------------

template <typename T, typename A>
__device__ T narrow(A x) {  // as C converts: integers are cut off
    return (T)x;
}
template <>
__device__ Half narrow<Half, float>(float x) {
    Half half;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half.bits) : "f"(x));
    return half;
}
template <>
__device__ Half narrow<Half, double>(double x) {  // rounded once, not by way of a float
    Half half;
    asm("cvt.rn.f16.f64 %0, %1;" : "=h"(half.bits) : "d"(x));
    return half;
}
__device__ u16 upper_half(u32 bits) {  // rounded
    return (u16)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
template <>
__device__ Brain narrow<Brain, float>(float x) {  // every NaN is 0x7fc0
    const u32 bits = __float_as_uint(x);
    return {x != x ? (u16)0x7fc0 : upper_half(bits)};
}

// -- other ways back, which differ from narrow in what their names say --------------------------------------------------

// A NaN keeps its sign and the upper bits of its payload.
__device__ Brain narrow_keeping_nan(float x) {
    const u32 bits = __float_as_uint(x);
    return {(bits & 0x7fffffff) > 0x7f800000 ? (u16)(bits >> 16 | 0x40) : upper_half(bits)};
}

#if __CUDA_ARCH__ >= 800
// By the device's instruction: every NaN is 0x7fff.
__device__ Brain narrow_by_instruction(float x) {
    Brain brain;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(brain.bits) : "f"(x));
    return brain;
}
#endif

// To nearest, ties to even; what is too large becomes the largest there is.
template <typename T>
__device__ T saturated(float x);
template <>
__device__ int saturated<int>(float x) {  // NaN is 0
    return __float2int_rn(x);
}
template <>
__device__ signed char saturated<signed char>(float x) {  // NaN is -128
    return (signed char)__float2int_rn(fminf(fmaxf(x, -128), 127));
}
#if __CUDA_ARCH__ >= 890
template <>
__device__ F8e4m3 saturated<F8e4m3>(float x) {  // NaN is 0x7f; infinity too becomes the largest
    u16 pair;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.f), "f"(x));
    return {(u8)pair};
}
template <>
__device__ F8e5m2 saturated<F8e5m2>(float x) {
    u16 pair;
    asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.f), "f"(x));
    return {(u8)pair};
}
#endif
