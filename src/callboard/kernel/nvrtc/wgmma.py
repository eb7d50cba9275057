"""``<callboard/wgmma.cuh>``: products of warpgroups on Hopper's tensor cores, written out for each shape.

The operand list of a product of N columns has N/2 registers, which the preprocessor cannot count; so the header is made
here. Forms: "PTX ISA", section on wgmma.
"""

from functools import cache

__all__ = ["COLUMNS", "FACTORS", "wgmma_header"]

COLUMNS = (8, 16, 32, 64, 96, 128, 192, 256)
FACTORS = {"f16": ("f16", 16), "bf16": ("bf16", 16), "e4m3": ("e4m3", 32), "e5m2": ("e5m2", 32)}
"""PTX's name of the factors, and the terms of one product."""

_HEAD = """\
// Products of warpgroups (128 threads) on Hopper's tensor cores; for sm_90a.
//
// wgmma_m64n128k16_f16(d, a, b, accumulate): D (64 x 128, f32) = A (64 x 16) @ B (128 x 16)^T, + D if accumulate. A and
// B lie in shared memory, K contiguous, as wgmma_descriptor says. Thread t holds in d[4 * j + i] the row 16 * (t / 32)
// + (t % 32) / 4 + 8 * (i / 2) and the column 8 * j + 2 * (t % 4) + i % 2. A step of k16 (k32 for 8 bits) is 32 bytes
// further: descriptor + 2.
#pragma once

namespace callboard {

#if __CUDA_ARCH__ >= 900

// Of a tile whose rows are one swizzle span (SWIZZLE: 32, 64 or 128 bytes) wide, as a tensor map with that swizzle
// writes it; the tile begins at a multiple of 8 * SWIZZLE bytes.
template <int SWIZZLE>
__device__ inline unsigned long long wgmma_descriptor(const void *shared) {
    static_assert(SWIZZLE == 32 || SWIZZLE == 64 || SWIZZLE == 128, "a row is 32, 64 or 128 bytes");
    const unsigned address = (unsigned)__cvta_generic_to_shared(shared);
    const unsigned long long mode = SWIZZLE == 128 ? 1 : SWIZZLE == 64 ? 2 : 3;
    return (unsigned long long)((address & 0x3ffff) >> 4) | (1ull << 16) |
           ((unsigned long long)(8 * SWIZZLE >> 4) << 32) | (mode << 62);
}

// Before the first product, and when threads have changed registers of d.
__device__ inline void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

__device__ inline void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

// Waits until at most N groups are on their way; then d may be read.
template <int N>
__device__ inline void wgmma_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}

"""
_TAIL = """\
#endif
}  // namespace callboard
"""


@cache
def wgmma_header() -> str:
    """The text of the header."""
    products = (_product(n, name) for name in FACTORS for n in COLUMNS)
    return _HEAD + "\n".join(products) + _TAIL


def _product(n: int, name: str) -> str:
    factor, terms = FACTORS[name]
    count = n // 2
    registers = ", ".join(f"%{at}" for at in range(count))
    bound = ", ".join(f'"+f"(d[{at}])' for at in range(count))
    # Signs of A and B; and of 16-bit factors, that both have K contiguous.
    settings = "1, 1, 0, 0" if terms == 16 else "1, 1"
    return (
        f"__device__ inline void wgmma_m64n{n}k{terms}_{name}(float (&d)[{count}], unsigned long long a, "
        f"unsigned long long b, bool accumulate) {{\n"
        f'    asm volatile("{{\\n.reg .pred p;\\nsetp.ne.b32 p, %{count + 2}, 0;\\n"\n'
        f'                 "wgmma.mma_async.sync.aligned.m64n{n}k{terms}.f32.{factor}.{factor} "\n'
        f'                 "{{{registers}}}, %{count}, %{count + 1}, p, {settings};\\n}}"\n'
        f"                 : {bound}\n"
        f'                 : "l"(a), "l"(b), "r"((unsigned)accumulate));\n'
        "}\n"
    )
