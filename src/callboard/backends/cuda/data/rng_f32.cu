// Random numbers of f32.

#include "rng_fills.cuh"

OF_TYPE(float)
