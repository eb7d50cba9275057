"""The kernels of a hash map in CUDA; see :mod:`.plain` for what they compute.

A key that is claimed in a batch is read from the batch until the launch has ended, so that no thread sees a key that
another has not written yet.
"""

__all__ = ["APPLY", "CLAIM", "FIND", "REHASH", "WIPE"]

HELPERS = r"""
__device__ long long start_of(const unsigned long long *query, int i, int w, int s) {
    unsigned long long mixed = 0x9E3779B97F4A7C15ull;
    for (int word = 0; word < w; ++word) {
        mixed ^= query[(long long)i * w + word];
        mixed ^= mixed >> 33;
        mixed *= 0xFF51AFD7ED558CCDull;
        mixed ^= mixed >> 33;
        mixed *= 0xC4CEB9FE1A85EC53ull;
        mixed ^= mixed >> 33;
    }
    return (long long)(mixed & (unsigned long long)(s - 1));
}
__device__ bool same(const unsigned long long *a, long long i, const unsigned long long *b, long long j, int w) {
    for (int word = 0; word < w; ++word) if (a[i * w + word] != b[j * w + word]) return false;
    return true;
}
"""

CLAIM = (
    HELPERS
    + r"""
extern "C" __global__ void claim(
    const unsigned long long *query, const unsigned long long *keys, int *tag, int *slot, int *order, int n, int w,
    int s, int how
) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    order[i] = i;
    slot[i] = -1;
    long long at = start_of(query, i, w, s);
    for (int probe = 0; probe < s; ++probe, at = (at + 1) & (s - 1)) {
        int now = ((volatile int *)tag)[at];
        if (now == 0) {
            if (how > 2) return;
            now = atomicCAS(&tag[at], 0, i + 1);
            if (now == 0) now = i + 1;
        }
        if ((now == -1 && same(keys, at, query, i, w)) || (now > 0 && same(query, now - 1, query, i, w))) {
            slot[i] = (int)at;
            return;
        }
    }
}
"""
)

APPLY = r"""
extern "C" __global__ void apply(
    const int *slots, const int *order, const unsigned long long *query, const T *given, unsigned long long *keys,
    int *tag, T *values, int *counts, int n, int w, int s, int v, int how
) {
    const int k = blockIdx.x * blockDim.x + threadIdx.x;
    if (k >= n) return;
    const long long at = slots[k];
    if (at < 0 || (k > 0 && slots[k - 1] == at)) return;
    if (how == 3) {
        tag[at] = -2;
        atomicAdd(&counts[0], -1);
        atomicAdd(&counts[1], 1);
        return;
    }
    const bool fresh = tag[at] > 0;
    if (fresh) {
        tag[at] = -1;
        atomicAdd(&counts[0], 1);
        for (int word = 0; word < w; ++word) keys[at * w + word] = query[(long long)order[k] * w + word];
    }
    if (how == 0 && !fresh) return;
    int from = k, end = k + 1;
    if (how != 0) while (end < n && slots[end] == at) ++end;
    if (how == 1) from = end - 1;
    if (how == 1 || fresh) {
        for (int column = 0; column < v; ++column) values[at * v + column] = given[(long long)order[from] * v + column];
        ++from;
    }
    if (how == 2) {
        for (; from < end; ++from)
            for (int column = 0; column < v; ++column)
                values[at * v + column] = (T)(values[at * v + column] + given[(long long)order[from] * v + column]);
    }
}
"""

FIND = (
    HELPERS
    + r"""
extern "C" __global__ void find(
    const unsigned long long *query, const unsigned long long *keys, const int *tag, const T *values,
    unsigned char *found, T *out, int n, int w, int s, int v
) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    long long at = start_of(query, i, w, s);
    bool has = false;
    for (int probe = 0; probe < s && !has; ++probe) {
        const int now = tag[at];
        if (now == 0) break;
        has = now == -1 && same(keys, at, query, i, w);
        if (!has) at = (at + 1) & (s - 1);
    }
    found[i] = has;
    for (int column = 0; column < v; ++column)
        out[(long long)i * v + column] = has ? values[at * v + column] : (T)0;
}
"""
)

REHASH = (
    HELPERS
    + r"""
extern "C" __global__ void rehash(
    const unsigned long long *keys, const int *tag, const T *values, unsigned long long *new_keys, int *new_tag,
    T *new_values, int *counts, int s, int w, int v, int r
) {
    const int old = blockIdx.x * blockDim.x + threadIdx.x;
    if (old == 0) counts[1] = 0;
    if (old >= s || tag[old] != -1) return;
    long long at = start_of(keys, old, w, r);
    while (atomicCAS(&new_tag[at], 0, -1) != 0) at = (at + 1) & (r - 1);
    for (int word = 0; word < w; ++word) new_keys[at * w + word] = keys[(long long)old * w + word];
    for (int column = 0; column < v; ++column) new_values[at * v + column] = values[(long long)old * v + column];
}
"""
)

WIPE = r"""
extern "C" __global__ void wipe(int *tag, int *counts, int s) {
    const int at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at < s) tag[at] = 0;
    if (at < 2) counts[at] = 0;
}
"""
