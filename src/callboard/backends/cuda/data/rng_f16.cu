// Random numbers of f16.

#include "rng_fills.cuh"

OF_TYPE(Half)
