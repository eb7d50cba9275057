// Random words as they are, of 4 or 8 bytes, and indices by weight.

#include "rng_fills.cuh"

FILL(bits_4, Bits<u32>)
FILL(bits_8, Bits<u64>)
FILL(discrete_4, Discrete<u32>)
FILL(discrete_8, Discrete<u64>)
