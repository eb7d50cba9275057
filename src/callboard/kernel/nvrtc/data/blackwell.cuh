// Helpers for data-centre Blackwell (compute capability 10.0, sm_100a): tensor memory and tcgen05 products.
//
// NVRTC finds it as <callboard/blackwell.cuh>. It is compiled in tests; it has run nowhere yet. Forms: "PTX ISA",
// section on the tcgen05 family.
#pragma once

namespace callboard {

__device__ inline unsigned tensor_shared(const void *p) { return (unsigned)__cvta_generic_to_shared(p); }

#if __CUDA_ARCH__ >= 1000

// By a whole warp: takes 32 to 512 columns (a power of two) of tensor memory; their address is stored at `shared`.
__device__ inline void tensor_memory_take(unsigned *shared, unsigned columns) {
    asm volatile("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], %1;" ::"r"(tensor_shared(shared)),
                 "r"(columns)
                 : "memory");
}

__device__ inline void tensor_memory_give(unsigned address, unsigned columns) {
    asm volatile("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %0, %1;" ::"r"(address), "r"(columns));
}

__device__ inline void tensor_memory_no_more() {
    asm volatile("tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;");
}

// D[tensor memory] = A @ B (+ D), by one thread; f16 or bf16 factors in shared memory, as the descriptors say.
__device__ inline void tensor_product_f16(unsigned d, unsigned long long a, unsigned long long b, unsigned instruction,
                                          bool accumulate) {
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.b32 p, %4, 0;\n"
        "tcgen05.mma.cta_group::1.kind::f16 [%0], %1, %2, %3, p;\n}" ::"r"(d),
        "l"(a), "l"(b), "r"(instruction), "r"((unsigned)accumulate)
        : "memory");
}

// Likewise, for factors of 8, 6 and 4 bits.
__device__ inline void tensor_product_f8(unsigned d, unsigned long long a, unsigned long long b, unsigned instruction,
                                         bool accumulate) {
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.b32 p, %4, 0;\n"
        "tcgen05.mma.cta_group::1.kind::f8f6f4 [%0], %1, %2, %3, p;\n}" ::"r"(d),
        "l"(a), "l"(b), "r"(instruction), "r"((unsigned)accumulate)
        : "memory");
}

// The barrier's phase ends when the products before it are complete.
__device__ inline void tensor_commit(unsigned long long *barrier) {
    asm volatile("tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];" ::"r"(
                     tensor_shared(barrier))
                 : "memory");
}

// 8 columns of the 32 lanes of this warp.
__device__ inline void tensor_memory_load(unsigned (&values)[8], unsigned address) {
    asm volatile("tcgen05.ld.sync.aligned.32x32b.x8.b32 {%0, %1, %2, %3, %4, %5, %6, %7}, [%8];"
                 : "=r"(values[0]), "=r"(values[1]), "=r"(values[2]), "=r"(values[3]), "=r"(values[4]),
                   "=r"(values[5]), "=r"(values[6]), "=r"(values[7])
                 : "r"(address));
}

__device__ inline void tensor_memory_wait() { asm volatile("tcgen05.wait::ld.sync.aligned;" ::: "memory"); }

__device__ inline void tensor_fence_before() { asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory"); }

__device__ inline void tensor_fence_after() { asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory"); }

#endif
}  // namespace callboard
