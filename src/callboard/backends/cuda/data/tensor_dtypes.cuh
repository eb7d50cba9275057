// KERNELS(name, T, type that T is computed in) of one dtype at a time: all would take ten seconds to compile.

#ifdef FOR_f16
KERNELS(f16, Half, float)
#endif
#ifdef FOR_bf16
KERNELS(bf16, Brain, float)
#endif
#ifdef FOR_f32
KERNELS(f32, float, float)
#endif
#ifdef FOR_f64
KERNELS(f64, double, double)
#endif
#ifdef FOR_c64
KERNELS(c64, Complex<float>, Complex<float>)
#endif
#ifdef FOR_c128
KERNELS(c128, Complex<double>, Complex<double>)
#endif
#ifdef FOR_i32
KERNELS(i32, int, int)
#endif
#ifdef FOR_i64
KERNELS(i64, i64, i64)
#endif
