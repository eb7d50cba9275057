// Pooling over up to three spatial axes, both ways. Beside what dnn.cuh wants, there are defined: MAX, for the largest
// element, else averages; LAST, where the channels are the last axis of the result; INDICES, where places are stored.
// Every thread makes one element of a result, and adds up in a fixed order.

#include "numbers.cuh"
#include "dnn.cuh"

struct Args {
    const TYPE* in;    // the array, or the gradient by the result
    TYPE* out;
    int* indices;      // of the largest elements: written forward, read backward
    i64 count;         // elements of the result
    i64 in_step[5], out_step[5], index_step[5];  // n, c, and the spatial axes
    i64 channels;
    int made[3];       // spatial extents of what is made
    int given[3];      // and of what is read
    int window[3], stride[3], before[3], dilation[3];
    int include_pad;
};

struct Place {
    i64 n, c;
    int at[3];
};

__device__ __forceinline__ Place place_of(const Args& p, i64 i) {
    Place found;
#if LAST
    found.c = i % p.channels;
    i /= p.channels;
#endif
#pragma unroll
    for (int axis = 2; axis >= 0; axis--) {
        found.at[axis] = (int)(i % p.made[axis]);
        i /= p.made[axis];
    }
#if !LAST
    found.c = i % p.channels;
    i /= p.channels;
#endif
    found.n = i;
    return found;
}

__device__ __forceinline__ i64 offset(const i64* step, const Place& at) {
    return at.n * step[0] + at.c * step[1] + at.at[0] * step[2] + at.at[1] * step[3] + at.at[2] * step[4];
}

// How many elements the average of a window is of.
__device__ __forceinline__ ACC divisor(const Args& p, const int* extent, int a, int b, int c) {
    if (p.include_pad) {
        return (ACC)p.window[0] * (ACC)p.window[1] * (ACC)p.window[2];
    }
    const int at[3] = {a, b, c};
    ACC inside = 1;
#pragma unroll
    for (int axis = 0; axis < 3; axis++) {
        const int start = at[axis] * p.stride[axis] - p.before[axis];
        const int end = start + p.window[axis];
        inside *= (ACC)((end < extent[axis] ? end : extent[axis]) - (start > 0 ? start : 0));
    }
    return inside;
}

extern "C" __global__ void forward(const Args p) {
    for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < p.count; i += (i64)gridDim.x * blockDim.x) {
        const Place here = place_of(p, i);
        const TYPE* const plane = p.in + here.n * p.in_step[0] + here.c * p.in_step[1];
        ACC best = 0;
        int best_at = -1;
        for (int a = 0; a < p.window[0]; a++) {
            const int z = here.at[0] * p.stride[0] - p.before[0] + a * p.dilation[0];
            if (z < 0 || z >= p.given[0]) continue;
            for (int b = 0; b < p.window[1]; b++) {
                const int y = here.at[1] * p.stride[1] - p.before[1] + b * p.dilation[1];
                if (y < 0 || y >= p.given[1]) continue;
                for (int c = 0; c < p.window[2]; c++) {
                    const int x = here.at[2] * p.stride[2] - p.before[2] + c * p.dilation[2];
                    if (x < 0 || x >= p.given[2]) continue;
                    const ACC value = wide(plane[z * p.in_step[2] + y * p.in_step[3] + x * p.in_step[4]]);
#if MAX
                    if (best_at < 0 || value > best || (value != value && best == best)) {
                        best = value;
                        best_at = (z * p.given[1] + y) * p.given[2] + x;
                    }
#else
                    best += value;
#endif
                }
            }
        }
#if !MAX
        best /= divisor(p, p.given, here.at[0], here.at[1], here.at[2]);
#endif
        p.out[offset(p.out_step, here)] = stored(best);
#if INDICES
        p.indices[offset(p.index_step, here)] = best_at;
#endif
    }
}

// The first window that meets an element, and the last.
__device__ __forceinline__ void met(const Args& p, int axis, int at, int* first, int* last) {
    const int reach = (p.window[axis] - 1) * p.dilation[axis], end = at + p.before[axis];
    *first = end <= reach ? 0 : (end - reach + p.stride[axis] - 1) / p.stride[axis];
    *last = end / p.stride[axis];
    if (*last >= p.given[axis]) *last = p.given[axis] - 1;
}

extern "C" __global__ void backward(const Args p) {
    for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < p.count; i += (i64)gridDim.x * blockDim.x) {
        const Place here = place_of(p, i);
        const i64 plane = here.n * p.in_step[0] + here.c * p.in_step[1];
        int first[3], last[3];
#pragma unroll
        for (int axis = 0; axis < 3; axis++) met(p, axis, here.at[axis], &first[axis], &last[axis]);
#if MAX
        const i64 index_plane = here.n * p.index_step[0] + here.c * p.index_step[1];
        const int own = (here.at[0] * p.made[1] + here.at[1]) * p.made[2] + here.at[2];
#endif
        ACC sum = 0;
        for (int z = first[0]; z <= last[0]; z++) {
            for (int y = first[1]; y <= last[1]; y++) {
                for (int x = first[2]; x <= last[2]; x++) {
                    const ACC value = wide(p.in[plane + z * p.in_step[2] + y * p.in_step[3] + x * p.in_step[4]]);
#if MAX
                    const i64 at = index_plane + z * p.index_step[2] + y * p.index_step[3] + x * p.index_step[4];
                    if (p.indices[at] == own) sum += value;
#else
                    sum += value / divisor(p, p.made, z, y, x);
#endif
                }
            }
        }
        p.out[offset(p.out_step, here)] = stored(sum);
    }
}
