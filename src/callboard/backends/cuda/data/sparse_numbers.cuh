// Numbers of sparse matrices: what each dtype is added up in.

struct Single { float re, im; };
struct alignas(16) Twice { double re, im; };

__device__ float wide(Half x) { return widen<float>(x); }
__device__ float wide(Brain x) { return widen<float>(x); }
__device__ float wide(float x) { return x; }
__device__ double wide(double x) { return x; }
__device__ Single wide(Single x) { return x; }
__device__ Twice wide(Twice x) { return x; }

__device__ void put(Half* at, float x) { *at = narrow<Half>(x); }
__device__ void put(Brain* at, float x) { *at = narrow<Brain>(x); }
template <typename T>
__device__ void put(T* at, T x) { *at = x; }

__device__ Single operator+(Single x, Single y) { return {x.re + y.re, x.im + y.im}; }
__device__ Twice operator+(Twice x, Twice y) { return {x.re + y.re, x.im + y.im}; }
__device__ Single operator*(Single x, Single y) { return {x.re * y.re - x.im * y.im, x.re * y.im + x.im * y.re}; }
__device__ Twice operator*(Twice x, Twice y) { return {x.re * y.re - x.im * y.im, x.re * y.im + x.im * y.re}; }
__device__ bool zero(float x) { return x == 0; }
__device__ bool zero(double x) { return x == 0; }
__device__ bool zero(Single x) { return x.re == 0 && x.im == 0; }
__device__ bool zero(Twice x) { return x.re == 0 && x.im == 0; }

// A factor: a 0-d array, or a number that came with the call.
struct Factor {
    const void* at;
    double re, im;
};
template <typename A> __device__ A number(const Factor& f);
template <> __device__ float number(const Factor& f) { return f.at ? *(const float*)f.at : (float)f.re; }
template <> __device__ double number(const Factor& f) { return f.at ? *(const double*)f.at : f.re; }
template <> __device__ Single number(const Factor& f) {
    return f.at ? *(const Single*)f.at : Single{(float)f.re, (float)f.im};
}
template <> __device__ Twice number(const Factor& f) { return f.at ? *(const Twice*)f.at : Twice{f.re, f.im}; }
