// Helpers for Hopper (compute capability 9.0): asynchronous copies, barriers, tensor maps (TMA) and clusters.
//
// NVRTC finds it as <callboard/hopper.cuh>, without the toolkit. Addresses of shared memory are generic pointers. Forms of
// PTX: "PTX ISA", sections on cp.async, cp.async.bulk, mbarrier, barrier.cluster and mapa.
#pragma once

namespace callboard {

// A CUtensorMap: `const __grid_constant__ callboard::TensorMap a` is the parameter of an array with a tensor map.
struct alignas(64) TensorMap {
    unsigned long long opaque[16];
};

typedef unsigned long long Barrier;  // in shared memory, 8 bytes aligned

__device__ inline unsigned shared_address(const void *p) { return (unsigned)__cvta_generic_to_shared(p); }

// -- cp.async (compute capability 8.0): 4, 8 or 16 bytes by each thread ------------------------------------------------

template <int BYTES>
__device__ inline void copy_async(void *shared, const void *global) {
    static_assert(BYTES == 4 || BYTES == 8 || BYTES == 16, "cp.async copies 4, 8 or 16 bytes");
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(shared_address(shared)), "l"(global), "n"(BYTES)
                 : "memory");
}

// 16 bytes that pass by the first-level cache.
__device__ inline void copy_async_l2(void *shared, const void *global) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(shared)), "l"(global) : "memory");
}

__device__ inline void copy_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Waits until at most N of this thread's groups are on their way.
template <int N>
__device__ inline void copy_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

#if __CUDA_ARCH__ >= 900

// -- barriers in shared memory -----------------------------------------------------------------------------------------

// By one thread, followed by barrier_init_fence and a synchronisation of the block (of the cluster).
__device__ inline void barrier_init(Barrier *barrier, unsigned arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals) : "memory");
}

__device__ inline void barrier_init_fence() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }

__device__ inline void barrier_arrive(Barrier *barrier) {
    asm volatile("{\n.reg .b64 state;\nmbarrier.arrive.shared::cta.b64 state, [%0];\n}" ::"r"(shared_address(barrier))
                 : "memory");
}

// Arrives, and lets the phase end when so many bytes of bulk copies have come, too.
__device__ inline void barrier_expect(Barrier *barrier, unsigned bytes) {
    asm volatile("{\n.reg .b64 state;\nmbarrier.arrive.expect_tx.shared::cta.b64 state, [%0], %1;\n}" ::"r"(
                     shared_address(barrier)),
                 "r"(bytes)
                 : "memory");
}

// Whether the phase of this parity (0, 1, 0 ...) has ended.
__device__ inline bool barrier_done(Barrier *barrier, unsigned parity) {
    unsigned done;
    asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
                 : "=r"(done)
                 : "r"(shared_address(barrier)), "r"(parity)
                 : "memory");
    return done;
}

__device__ inline void barrier_wait(Barrier *barrier, unsigned parity) {
    while (!barrier_done(barrier, parity)) {
    }
}

// -- bulk copies, by one thread ----------------------------------------------------------------------------------------

// What threads wrote to shared memory is seen by bulk copies and wgmma behind it.
__device__ inline void async_fence() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// Addresses and bytes are multiples of 16.
__device__ inline void bulk_load(void *shared, const void *global, unsigned bytes, Barrier *barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                     shared_address(shared)),
                 "l"(global), "r"(bytes), "r"(shared_address(barrier))
                 : "memory");
}

__device__ inline void bulk_store(void *global, const void *shared, unsigned bytes) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(global),
                 "r"(shared_address(shared)), "r"(bytes)
                 : "memory");
}

__device__ inline void bulk_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }

// Waits until at most N of this thread's groups still read shared memory.
template <int N>
__device__ inline void bulk_wait_read() {
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(N) : "memory");
}

// Waits until at most N of this thread's groups are not complete.
template <int N>
__device__ inline void bulk_wait() {
    asm volatile("cp.async.bulk.wait_group %0;" ::"n"(N) : "memory");
}

// -- tensor maps: the first coordinate is that of the last axis of the array -------------------------------------------

__device__ inline void tensor_prefetch(const TensorMap *map) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

#define CALLBOARD_LOAD(DIMS, COORDINATES)                                                                         \
    "cp.async.bulk.tensor." DIMS ".shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {" COORDINATES \
    "}], [%2];"
#define CALLBOARD_STORE(DIMS, COORDINATES) \
    "cp.async.bulk.tensor." DIMS ".global.shared::cta.tile.bulk_group [%0, {" COORDINATES "}], [%1];"

__device__ inline void tensor_load_1d(void *shared, const TensorMap *map, int x, Barrier *barrier) {
    asm volatile(CALLBOARD_LOAD("1d", "%3") ::"r"(shared_address(shared)), "l"(map), "r"(shared_address(barrier)),
                 "r"(x)
                 : "memory");
}

__device__ inline void tensor_load_2d(void *shared, const TensorMap *map, int x, int y, Barrier *barrier) {
    asm volatile(CALLBOARD_LOAD("2d", "%3, %4") ::"r"(shared_address(shared)), "l"(map),
                 "r"(shared_address(barrier)), "r"(x), "r"(y)
                 : "memory");
}

__device__ inline void tensor_load_3d(void *shared, const TensorMap *map, int x, int y, int z, Barrier *barrier) {
    asm volatile(CALLBOARD_LOAD("3d", "%3, %4, %5") ::"r"(shared_address(shared)), "l"(map),
                 "r"(shared_address(barrier)), "r"(x), "r"(y), "r"(z)
                 : "memory");
}

__device__ inline void tensor_load_4d(void *shared, const TensorMap *map, int x, int y, int z, int w,
                                      Barrier *barrier) {
    asm volatile(CALLBOARD_LOAD("4d", "%3, %4, %5, %6") ::"r"(shared_address(shared)), "l"(map),
                 "r"(shared_address(barrier)), "r"(x), "r"(y), "r"(z), "r"(w)
                 : "memory");
}

__device__ inline void tensor_load_5d(void *shared, const TensorMap *map, int x, int y, int z, int w, int v,
                                      Barrier *barrier) {
    asm volatile(CALLBOARD_LOAD("5d", "%3, %4, %5, %6, %7") ::"r"(shared_address(shared)), "l"(map),
                 "r"(shared_address(barrier)), "r"(x), "r"(y), "r"(z), "r"(w), "r"(v)
                 : "memory");
}

// Into the same place of every block of the cluster whose bit is set; each one's barrier counts the bytes.
__device__ inline void tensor_multicast_2d(void *shared, const TensorMap *map, int x, int y, Barrier *barrier,
                                           unsigned short blocks) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster "
        "[%0], [%1, {%3, %4}], [%2], %5;" ::"r"(shared_address(shared)),
        "l"(map), "r"(shared_address(barrier)), "r"(x), "r"(y), "h"(blocks)
        : "memory");
}

__device__ inline void tensor_store_1d(const TensorMap *map, const void *shared, int x) {
    asm volatile(CALLBOARD_STORE("1d", "%2") ::"l"(map), "r"(shared_address(shared)), "r"(x) : "memory");
}

__device__ inline void tensor_store_2d(const TensorMap *map, const void *shared, int x, int y) {
    asm volatile(CALLBOARD_STORE("2d", "%2, %3") ::"l"(map), "r"(shared_address(shared)), "r"(x), "r"(y) : "memory");
}

__device__ inline void tensor_store_3d(const TensorMap *map, const void *shared, int x, int y, int z) {
    asm volatile(CALLBOARD_STORE("3d", "%2, %3, %4") ::"l"(map), "r"(shared_address(shared)), "r"(x), "r"(y), "r"(z)
                 : "memory");
}

__device__ inline void tensor_store_4d(const TensorMap *map, const void *shared, int x, int y, int z, int w) {
    asm volatile(CALLBOARD_STORE("4d", "%2, %3, %4, %5") ::"l"(map), "r"(shared_address(shared)), "r"(x), "r"(y),
                 "r"(z), "r"(w)
                 : "memory");
}

__device__ inline void tensor_store_5d(const TensorMap *map, const void *shared, int x, int y, int z, int w, int v) {
    asm volatile(CALLBOARD_STORE("5d", "%2, %3, %4, %5, %6") ::"l"(map), "r"(shared_address(shared)), "r"(x), "r"(y),
                 "r"(z), "r"(w), "r"(v)
                 : "memory");
}

#undef CALLBOARD_LOAD
#undef CALLBOARD_STORE

// -- clusters ----------------------------------------------------------------------------------------------------------

__device__ inline unsigned cluster_rank() {
    unsigned rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

__device__ inline unsigned cluster_blocks() {
    unsigned blocks;
    asm volatile("mov.u32 %0, %%cluster_nctarank;" : "=r"(blocks));
    return blocks;
}

__device__ inline void cluster_arrive() { asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory"); }

__device__ inline void cluster_wait() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }

__device__ inline void cluster_sync() {
    cluster_arrive();
    cluster_wait();
}

// Address in the cluster's window of what lies at `shared` in the block of this rank.
__device__ inline unsigned cluster_address(const void *shared, unsigned rank) {
    unsigned address;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(address) : "r"(shared_address(shared)), "r"(rank));
    return address;
}

// 4 bytes of the shared memory of the block of this rank.
__device__ inline unsigned cluster_load(const void *shared, unsigned rank) {
    unsigned value;
    asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(value) : "r"(cluster_address(shared, rank)) : "memory");
    return value;
}

__device__ inline void cluster_store(void *shared, unsigned rank, unsigned value) {
    asm volatile("st.shared::cluster.u32 [%0], %1;" ::"r"(cluster_address(shared, rank)), "r"(value) : "memory");
}

// -- registers of warps ------------------------------------------------------------------------------------------------

// Of a warpgroup that computes, and of one that only loads; multiples of 8, 24 to 256. Needs sm_90a.
template <int N>
__device__ inline void registers_up() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
}

template <int N>
__device__ inline void registers_down() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
}

#endif
}  // namespace callboard
