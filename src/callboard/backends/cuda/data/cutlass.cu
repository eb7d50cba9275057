// Products of groups of rows with a matrix each, and the patches of images that turn convolutions into products.
// Plain loops over tiles in shared memory: for what the vendor's libraries lack. Sums are kept in float (double beside
// double, int beside bytes).

#include "numbers.cuh"
#include "convert.cuh"

struct GroupedArgs {  // steps in elements
    const void *a, *b, *offsets;
    void *sum, *group;  // sum: [rows, n] without gaps; group: [rows] of int, the group that a row is in, -1 for none
    i64 rows, n, k, groups;
    i64 a_row, a_col, b_group, b_row, b_col;
};

template <typename A> __device__ A taken(Half x) { return (A)widen<float>(x); }
template <typename A> __device__ A taken(Brain x) { return (A)widen<float>(x); }
template <typename A> __device__ A taken(F8e4m3 x) { return (A)from_small(x.bits, E4M3); }
template <typename A> __device__ A taken(F8e5m2 x) { return (A)from_small(x.bits, E5M2); }
template <typename A> __device__ A taken(float x) { return (A)x; }
template <typename A> __device__ A taken(double x) { return (A)x; }
template <typename A> __device__ A taken(signed char x) { return (A)x; }

// 256 threads, tiles of 32 rows and 32 columns; a tile that several groups share is gone through once for each.
template <typename T, typename U, typename A>
__device__ void grouped(const GroupedArgs& p) {
    __shared__ A left[32][17], right[16][33];
    const int x = threadIdx.x % 32, y = threadIdx.x / 32;
    const i64 across = (p.n + 31) / 32, tiles = (p.rows + 31) / 32 * across;
    const int* offsets = (const int*)p.offsets;
    for (i64 tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        const i64 top = tile / across * 32, column = tile % across * 32 + x;
        A sum[4] = {A(0), A(0), A(0), A(0)};
        int group[4] = {-1, -1, -1, -1};
        for (i64 g = 0; g < p.groups; ++g) {
            const i64 low = offsets[g], high = offsets[g + 1];
            const i64 start = low < 0 ? 0 : low, stop = high > p.rows ? p.rows : high;
            if (start >= stop || stop <= top || start >= top + 32) {
                continue;
            }
            A part[4] = {A(0), A(0), A(0), A(0)};
            for (i64 from = 0; from < p.k; from += 16) {
                __syncthreads();
                for (int i = threadIdx.x; i < 512; i += 256) {
                    const i64 row = top + i / 16, inner = from + i % 16;
                    const bool inside = row < p.rows && inner < p.k;
                    left[i / 16][i % 16] = inside ? taken<A>(((const T*)p.a)[row * p.a_row + inner * p.a_col]) : A(0);
                    const i64 deep = from + i / 32, col = tile % across * 32 + i % 32;
                    const bool within = deep < p.k && col < p.n;
                    right[i / 32][i % 32] =
                        within ? taken<A>(((const U*)p.b)[g * p.b_group + deep * p.b_row + col * p.b_col]) : A(0);
                }
                __syncthreads();
                for (int inner = 0; inner < 16; ++inner) {
                    for (int i = 0; i < 4; ++i) {
                        part[i] += left[y + 8 * i][inner] * right[inner][x];
                    }
                }
            }
            for (int i = 0; i < 4; ++i) {
                const i64 row = top + y + 8 * i;
                if (row >= start && row < stop) {
                    sum[i] = part[i];
                    group[i] = (int)g;
                }
            }
        }
        for (int i = 0; i < 4; ++i) {
            const i64 row = top + y + 8 * i;
            if (row < p.rows && column < p.n) {
                ((A*)p.sum)[row * p.n + column] = sum[i];
                if (column == 0) {
                    ((int*)p.group)[row] = group[i];
                }
            }
        }
    }
}

#define GROUPED(name, T, U, A) \
    extern "C" __global__ void __launch_bounds__(256) grouped_##name(const GroupedArgs p) { grouped<T, U, A>(p); }
GROUPED(f16_f16, Half, Half, float)
GROUPED(bf16_bf16, Brain, Brain, float)
GROUPED(f32_f32, float, float, float)
GROUPED(f64_f64, double, double, double)
GROUPED(i8_i8, signed char, signed char, int)
GROUPED(f8_e4m3_f8_e4m3, F8e4m3, F8e4m3, float)
GROUPED(f8_e4m3_f8_e5m2, F8e4m3, F8e5m2, float)
GROUPED(f8_e5m2_f8_e4m3, F8e5m2, F8e4m3, float)
GROUPED(f8_e5m2_f8_e5m2, F8e5m2, F8e5m2, float)

struct PatchArgs {  // images [images, h, w, c], patches [images, p, q, r, s, c], both without gaps
    const void* src;
    void* out;
    i64 images, h, w, c, p, q, r, s;
    i64 down, right, top, left, far, wide;  // stride, padding, dilation
};

template <typename T>
__device__ void patches(const PatchArgs& a) {
    const i64 total = a.images * a.p * a.q * a.r * a.s * a.c;
    for (i64 i = blockIdx.x * 256ll + threadIdx.x; i < total; i += gridDim.x * 256ll) {
        const i64 c = i % a.c, s = i / a.c % a.s, r = i / a.c / a.s % a.r, pixel = i / a.c / a.s / a.r;
        const i64 q = pixel % a.q, p = pixel / a.q % a.p, image = pixel / a.q / a.p;
        const i64 y = p * a.down - a.top + r * a.far, x = q * a.right - a.left + s * a.wide;
        const bool inside = y >= 0 && y < a.h && x >= 0 && x < a.w;
        ((T*)a.out)[i] = inside ? ((const T*)a.src)[((image * a.h + y) * a.w + x) * a.c + c] : T(0);
    }
}
extern "C" __global__ void __launch_bounds__(256) patches_1(const PatchArgs a) { patches<u8>(a); }
extern "C" __global__ void __launch_bounds__(256) patches_2(const PatchArgs a) { patches<u16>(a); }
extern "C" __global__ void __launch_bounds__(256) patches_4(const PatchArgs a) { patches<u32>(a); }
extern "C" __global__ void __launch_bounds__(256) patches_8(const PatchArgs a) { patches<u64>(a); }

// The way back: each pixel is the sum of its places in all patches, in their order.
template <typename T>
__device__ void gathered(const PatchArgs& a) {
    const i64 total = a.images * a.h * a.w * a.c;
    for (i64 i = blockIdx.x * 256ll + threadIdx.x; i < total; i += gridDim.x * 256ll) {
        const i64 c = i % a.c, x = i / a.c % a.w, y = i / a.c / a.w % a.h, image = i / a.c / a.w / a.h;
        T sum = T(0);
        for (i64 r = 0; r < a.r; ++r) {
            const i64 down = y + a.top - r * a.far;
            if (down < 0 || down % a.down || down / a.down >= a.p) {
                continue;
            }
            for (i64 s = 0; s < a.s; ++s) {
                const i64 right = x + a.left - s * a.wide;
                if (right < 0 || right % a.right || right / a.right >= a.q) {
                    continue;
                }
                const i64 pixel = (image * a.p + down / a.down) * a.q + right / a.right;
                sum += ((const T*)a.src)[((pixel * a.r + r) * a.s + s) * a.c + c];
            }
        }
        ((T*)a.out)[i] = sum;
    }
}
extern "C" __global__ void __launch_bounds__(256) gathered_f32(const PatchArgs a) { gathered<float>(a); }
extern "C" __global__ void __launch_bounds__(256) gathered_f64(const PatchArgs a) { gathered<double>(a); }
extern "C" __global__ void __launch_bounds__(256) gathered_i32(const PatchArgs a) { gathered<int>(a); }
