// Sets what a conditional node of a graph goes by, from a value in device memory.

#include "numbers.cuh"

// Of the device runtime; the driver puts it in its place when the module is loaded.
extern "C" __device__ void cudaGraphSetConditional(u64 handle, unsigned int value);

__device__ u64 bits(const void* at, int width) {
    switch (width) {
        case 1: return *(const u8*)at;
        case 2: return *(const unsigned short*)at;
        case 4: return *(const u32*)at;
        default: return *(const u64*)at;
    }
}

// mask: the bits that say that a value is not 0 (all but a float's sign). bodies: those of a switch, else 0.
// turns: where the turns of a loop are counted, or null; most: its turns at most, or 0; again: a turn has been done.
extern "C" __global__ void condition(u64 handle, const void* at, int width, u64 mask, u32 bodies,
                                     i64* turns, i64 most, int again) {
    const u64 value = bits(at, width) & mask;
    u32 chosen = bodies ? (value < bodies ? (u32)value : bodies) : value != 0;
    if (turns) {
        const i64 done = again ? *turns + 1 : 0;
        *turns = done;
        if (most && done >= most) chosen = 0;
    }
    cudaGraphSetConditional(handle, chosen);
}
