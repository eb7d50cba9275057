// One element of any type to any other, as NumPy and ml_dtypes convert. Where the types are constants, only their ways are left.

// The numbers are those of callboard.core.dtype.
enum Type { F16, BF16, F32, F64, C64, C128, I8, I16, I32, I64, U8, U16, U32, U64, BOOL, E4M3, E5M2, E2M1 };

__device__ __forceinline__ constexpr int size_of(int type) {
    return type == C128 ? 16
           : type == F64 || type == C64 || type == I64 || type == U64 ? 8
           : type == F32 || type == I32 || type == U32 ? 4
           : type == F16 || type == BF16 || type == I16 || type == U16 ? 2 : 1;
}

// Floating types of a byte: OFP8 (E4M3 has no infinity, 0x7f is NaN) and MX (E2M1 has neither, in the low 4 bits).
struct Small {
    int mantissa, bias;
    u32 largest, sign, infinity, nan;
};

__device__ __forceinline__ Small small_of(int type) {
    if (type == E4M3) {
        return {3, 7, 0x7e, 0x80, 0x7f, 0x7f};
    }
    return type == E5M2 ? Small{2, 15, 0x7b, 0x80, 0x7c, 0x7e} : Small{1, 1, 7, 8, 7, 8};
}

__device__ __forceinline__ float from_small(u32 code, int type) {
    const Small s = small_of(type);
    const u32 magnitude = code & (s.sign - 1), one = 1u << s.mantissa;
    float value;
    if (type != E2M1 && magnitude > s.largest) {
        value = __uint_as_float(magnitude == s.infinity && type == E5M2 ? 0x7f800000u : 0x7fc00000u);
    } else {
        const int exponent = (int)(magnitude >> s.mantissa);
        const u32 digits = magnitude & (one - 1);
        value = exponent ? ldexpf((float)(one + digits), exponent - s.bias - s.mantissa)
                         : ldexpf((float)digits, 1 - s.bias - s.mantissa);
    }
    return code & s.sign ? -value : value;
}

__device__ __forceinline__ u8 to_small(float f, int type) {  // to nearest, ties to even; what is too large becomes as ml_dtypes has it
    const Small s = small_of(type);
    const u32 bits = __float_as_uint(f), sign = bits >> 31 ? s.sign : 0;
    if (f != f) {
        return (u8)(type == E2M1 ? s.nan : sign | s.nan);
    }
    if ((bits & 0x7fffffff) == 0x7f800000) {
        return (u8)(sign | s.infinity);
    }
    int exponent = (int)(bits >> 23 & 0xff) - 127;
    exponent = exponent < 1 - s.bias ? 1 - s.bias : exponent;
    const u32 digits = (u32)rintf(ldexpf(fabsf(f), s.mantissa - exponent));
    const u32 one = 1u << s.mantissa;
    const u32 code = digits < one ? digits : ((u32)(exponent + s.bias) << s.mantissa) + digits - one;
    return (u8)(sign | (code > s.largest ? s.infinity : code));
}

struct Number {
    double re, im;  // of floating and complex types
    u64 whole;      // of integers, sign extended
    bool is_whole, is_signed;
};

__device__ __forceinline__ Number load(const void* p, int type) {
    Number n = {0.0, 0.0, 0, false, false};
    switch (type) {
        case F16: n.re = widen<float>(*(const Half*)p); return n;
        case BF16: n.re = widen<float>(*(const Brain*)p); return n;
        case E4M3: case E5M2: case E2M1: n.re = from_small(*(const u8*)p, type); return n;
        case F32: n.re = *(const float*)p; return n;
        case F64: n.re = *(const double*)p; return n;
        case C64: n.re = ((const float*)p)[0]; n.im = ((const float*)p)[1]; return n;
        case C128: n.re = ((const double*)p)[0]; n.im = ((const double*)p)[1]; return n;
    }
    n.is_whole = true;
    n.is_signed = type >= I8 && type <= I64;
    switch (type) {
        case I8: n.whole = (u64)(i64)*(const signed char*)p; break;
        case I16: n.whole = (u64)(i64)*(const short*)p; break;
        case I32: n.whole = (u64)(i64)*(const int*)p; break;
        case I64: case U64: n.whole = *(const u64*)p; break;
        case U8: case BOOL: n.whole = *(const u8*)p; break;
        case U16: n.whole = *(const u16*)p; break;
        case U32: n.whole = *(const u32*)p; break;
    }
    return n;
}

__device__ __forceinline__ void convert_one(const void* src, void* out, int from, int to) {
    const Number n = load(src, from);
    const double re = !n.is_whole ? n.re : n.is_signed ? (double)(i64)n.whole : (double)n.whole;
    const float single = !n.is_whole ? (float)n.re : n.is_signed ? (float)(i64)n.whole : (float)n.whole;
    u64 whole = n.whole;
    if (!n.is_whole) {
        whole = to == U64 && re >= 9223372036854775808.0 ? (u64)re : (u64)(i64)re;
    }
    switch (to) {
        case F16: *(Half*)out = narrow<Half>(re); break;
        case BF16: *(Brain*)out = narrow<Brain>(single); break;
        case E4M3: case E5M2: case E2M1: *(u8*)out = to_small(single, to); break;
        case F32: *(float*)out = single; break;
        case F64: *(double*)out = re; break;
        case C64: ((float*)out)[0] = single; ((float*)out)[1] = (float)n.im; break;
        case C128: ((double*)out)[0] = re; ((double*)out)[1] = n.im; break;
        case I8: case U8: *(u8*)out = (u8)whole; break;
        case I16: case U16: *(u16*)out = (u16)whole; break;
        case I32: case U32: *(u32*)out = (u32)whole; break;
        case I64: case U64: *(u64*)out = whole; break;
        case BOOL: *(u8*)out = n.is_whole ? n.whole != 0 : n.re != 0.0 || n.im != 0.0; break;
    }
}
